package cluster

import (
	"errors"
	"fmt"
)

// Unfit says which egresses a host cannot hold now, and why: nobody waits for it to take them, and everybody can say whose link
// is gone. Of a host without the record, as of one with an older agent, nobody knows of any.
type Unfit struct {
	Host     NodeID      `cbor:"1,keyasint,omitempty"`
	Egresses []UnfitCase `cbor:"2,keyasint,omitempty"`
}

// UnfitCase is one of those.
type UnfitCase struct {
	Egress string `cbor:"1,keyasint,omitempty"` // Egress.Name
	// NIC is the interface for its address, which has no link; "": the host has none on a LAN of the address.
	NIC string `cbor:"2,keyasint,omitempty"`
}

// MaxUnfit is of how many egresses a host says so, that one broadcast has room for names of the usual length. The body has room for more.
const MaxUnfit = 16

// Key names the record.
func (u Unfit) Key() Key { return Key{KindUnfit, string(u.Host)} }

func (u Unfit) speaker() NodeID { return u.Host }

func (u Unfit) validate() error {
	err := host("host", u.Host)
	if len(u.Egresses) > maxEntries {
		return errors.Join(err, fmt.Errorf("%d egresses, at most %d", len(u.Egresses), maxEntries))
	}
	for _, c := range u.Egresses {
		err = errors.Join(err, name("egress", c.Egress), optional("interface", c.NIC))
	}
	return err
}
