package cluster

import (
	"errors"
	"fmt"
	"net/netip"
)

// Addresses are all that a host has itself, of every interface: where it publishes ports, and so what no name is to open
// to a container that may reach others by name alone. A host whose agent does not know this record has none.
type Addresses struct {
	Host NodeID       `cbor:"1,keyasint,omitempty"`
	List []netip.Addr `cbor:"2,keyasint,omitempty"`
}

// MaxAddresses is how many a host tells. Its body has room for more, of hosts to come that tell more.
const MaxAddresses = 512

// Key names the record of a host's addresses.
func (a Addresses) Key() Key { return Key{KindAddresses, string(a.Host)} }

func (a Addresses) speaker() NodeID { return a.Host }

func (a Addresses) validate() error {
	err := host("host", a.Host)
	for _, one := range a.List {
		if !one.IsValid() || one.Is4In6() || one.Zone() != "" {
			err = errors.Join(err, fmt.Errorf("%s is no address of a host", one))
		}
	}
	return err
}
