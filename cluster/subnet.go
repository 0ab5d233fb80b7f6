package cluster

import (
	"errors"
	"fmt"
	"net/netip"
)

// Subnet is a prefix of a network. A network may have several.
type Subnet struct {
	Prefix  netip.Prefix `cbor:"1,keyasint,omitzero"`
	Network string       `cbor:"2,keyasint,omitempty"`
	// Gateway is the anycast gateway address (may be invalid: none).
	Gateway netip.Addr `cbor:"3,keyasint,omitzero"`
	// HostBits is OpenShift's hostsubnetlength: every host's share has exactly
	// this many host bits, handed out in OpenShift's order. 0: shares of any size.
	HostBits uint8 `cbor:"4,keyasint,omitempty"`
	// Home is the host that brought the prefix in; ranges go back to it when the
	// subnet goes.
	Home NodeID `cbor:"5,keyasint,omitempty"`
	// Range limits automatic addresses (--ip-range); invalid: the whole prefix.
	Range netip.Prefix `cbor:"6,keyasint,omitzero"`
	// Aux are the addresses reserved by --aux-address, by name.
	Aux map[string]netip.Addr `cbor:"7,keyasint,omitempty"`
	// Implied says that Docker lists no gateway where the network was made, since nobody said one.
	Implied bool `cbor:"8,keyasint,omitempty"`
	// Place is its place among the subnets of its family that came with it, from 0 on: containers get their
	// address from the first.
	Place uint8 `cbor:"9,keyasint,omitempty"`
}

// Key names the record of a subnet.
func (s Subnet) Key() Key { return Key{KindSubnet, s.Prefix.String()} }

func (Subnet) speaker() NodeID { return "" }

func (s Subnet) validate() error {
	if err := block("prefix", s.Prefix); err != nil {
		return err
	}
	err := name("network", s.Network)
	if s.Home != "" {
		err = errors.Join(err, host("home", s.Home))
	}
	if s.Gateway.IsValid() {
		err = errors.Join(err, inside("gateway", s.Gateway, s.Prefix))
	}
	if s.Range.IsValid() {
		err = errors.Join(err, block("range", s.Range), inside("range", s.Range.Addr(), s.Prefix))
		if s.Range.Bits() < s.Prefix.Bits() {
			err = errors.Join(err, fmt.Errorf("range %s is wider than the prefix %s", s.Range, s.Prefix))
		}
	}
	if free := s.Prefix.Addr().BitLen() - s.Prefix.Bits(); int(s.HostBits) > free {
		err = errors.Join(err, fmt.Errorf("%d host bits do not fit into %s", s.HostBits, s.Prefix))
	}
	if len(s.Aux) > maxEntries {
		return errors.Join(err, fmt.Errorf("%d reserved addresses, at most %d", len(s.Aux), maxEntries))
	}
	for k, a := range s.Aux {
		err = errors.Join(err, optional("name of a reserved address", k), inside("reserved address", a, s.Prefix))
	}
	return err
}
