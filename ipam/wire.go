package ipam

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/fxamacker/cbor/v2"
)

// The methods that the allocators of two hosts call on each other.
const (
	methodGive   = "ipam.give"   // askGive -> replyGive
	methodForget = "ipam.forget" // askForget -> replyForget
	methodTake   = "ipam.take"   // records of claims -> nothing: durable on return
	methodBooks  = "ipam.books"  // anything -> nothing: from who knows of the commons
)

// kind says what an asker wants. The numbers are wire format: append only.
type kind uint8

const (
	giveShare kind = 1 // half of what is free in a subnet, or a host subnet of it
	giveSpace kind = 2 // half of what is unused in a number space, in blocks of Unit bits or more
	giveExact kind = 3 // just the block Within: an address of a subnet, a prefix, a VNID, a line of a book
	giveBook  kind = 4 // the book Within, but for what is lent
)

// askGive is the request for ownership. Within is the subnet (or its --ip-range),
// the number space, or the very block that is asked for.
type askGive struct {
	Kind   kind         `cbor:"1,keyasint"`
	Within netip.Prefix `cbor:"2,keyasint"`
	Subnet netip.Prefix `cbor:"3,keyasint,omitzero"`
	Unit   int          `cbor:"4,keyasint,omitempty"`
	// HostBits, not 0, asks for a host subnet of Subnet that overlaps Within.
	HostBits uint8 `cbor:"5,keyasint,omitempty"`
	// Need says that somebody waits for it, and that it is not only to be in stock:
	// then a host that has too little to give half gives what is asked for.
	Need bool `cbor:"6,keyasint,omitempty"`
	// Live is the counter of the version in which the asker knows the Subnet: who knows of its
	// end since gives nothing. Older agents send 0.
	Live uint64 `cbor:"7,keyasint,omitempty"`
}

// replyGive carries the claims by which the asker owns what it got, and to which
// it may add what the giver knows better; or why there are none.
type replyGive struct {
	Claims  []byte `cbor:"1,keyasint,omitempty"` // a cluster.Message
	Refused string `cbor:"2,keyasint,omitempty"`
	// Busy says that the host wants the same itself just now, and may not in a moment.
	Busy bool `cbor:"4,keyasint,omitempty"`
	// Former says who had the numbers before (Config.Former).
	Former []byte `cbor:"5,keyasint,omitempty"`
	// Begun says that just what was asked for is the subnet of a network there, or will
	// be in a moment: the asker has only to wait until it hears of it.
	Begun bool `cbor:"3,keyasint,omitempty"`
}

// errBegun is a refusal with replyGive.Begun.
var errBegun = errors.New("the subnet is another host's network already")

var (
	wireEnc = func() cbor.EncMode {
		m, err := cbor.CoreDetEncOptions().EncMode()
		if err != nil {
			panic(err) // constant options
		}
		return m
	}()
	wireDec = func() cbor.DecMode {
		m, err := cbor.DecOptions{
			MaxNestedLevels: 4, MaxArrayElements: 1024, MaxMapPairs: 64,
			IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		}.DecMode()
		if err != nil {
			panic(err) // constant options
		}
		return m
	}()
)

func encode(v any) ([]byte, error) {
	b, err := wireEnc.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return b, nil
}

func decode[T any](b []byte) (v T, err error) {
	if err := wireDec.Unmarshal(b, &v); err != nil {
		return v, fmt.Errorf("malformed message of %d bytes: %w", len(b), err)
	}
	return v, nil
}

// check refuses requests that no correct host sends.
func (g askGive) check() error {
	bitLen := g.Within.Addr().BitLen()
	switch {
	case !g.Within.IsValid() || g.Within != g.Within.Masked() || g.Within.Addr().Is4In6():
		return errors.New("the range asked for is not a masked prefix")
	case g.Kind < giveShare || g.Kind > giveBook:
		return fmt.Errorf("kind %d of request is unknown; this host's agent is older: upgrade it", g.Kind)
	case g.Kind == giveSpace && (g.Unit < g.Within.Bits() || g.Unit > bitLen):
		return fmt.Errorf("unit /%d does not fit into %s", g.Unit, g.Within)
	case g.HostBits > 0 && (!g.Subnet.IsValid() || g.Subnet != g.Subnet.Masked() || !within(g.Within, g.Subnet)):
		return fmt.Errorf("range %s is not inside the subnet %s", g.Within, g.Subnet)
	}
	return nil
}

func (g askGive) String() string {
	switch {
	case g.Kind == giveExact:
		if _, page, ok := bookOf(g.Within); ok {
			return fmt.Sprint("the word for ", realOf(page)[len(realOf(page))-1])
		}
		return g.Within.String()
	case g.Kind == giveBook:
		return fmt.Sprintf("the book %s", g.Within)
	case g.HostBits > 0:
		return fmt.Sprintf("a host subnet of %d host bits in %s", g.HostBits, g.Subnet)
	case g.Kind == giveSpace:
		return fmt.Sprintf("a part of %s of at least a /%d", g.Within, g.Unit)
	}
	return fmt.Sprintf("a share of %s", g.Within)
}
