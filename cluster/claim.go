package cluster

import (
	"net/netip"

	"github.com/grapevine-net/grapevine/ring"
)

// Claim says who owns a block of the ring.
type Claim struct {
	Block netip.Prefix `cbor:"1,keyasint,omitzero"`
	Owner NodeID       `cbor:"2,keyasint,omitempty"`
}

// Key names the record of a claim.
func (c Claim) Key() Key { return Key{KindClaim, c.Block.String()} }

func (Claim) speaker() NodeID { return "" }

func (c Claim) validate() error {
	version := ring.Version{Counter: 1, By: c.Owner}
	return ring.Claim{Block: c.Block, Version: version, Owner: c.Owner}.Validate()
}

// claim returns the record as a claim of the ring.
func (r *Record) claim() (ring.Claim, bool) {
	c, ok := r.Body.(Claim)
	return ring.Claim{Block: c.Block, Owner: c.Owner, Version: ring.Version{Counter: r.Version.Counter, By: r.Version.Node}}, ok
}
