package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Egress is an address from which all that networks send to the outside leaves, from whichever host it comes: by one of
// several gateways, which holds the address (EgressHolder). Any host may write any.
type Egress struct {
	Name     string       `cbor:"1,keyasint,omitempty"`
	Networks []string     `cbor:"2,keyasint,omitempty"` // Network.Name
	Addrs    []netip.Addr `cbor:"3,keyasint,omitempty"` // at most one of a family
	// Gateways are the names of the hosts that may hold the address, which a host keeps when it joins anew, or labels of hosts
	// (Node.Labels), KEY=VALUE: all that have one of these may; none: all hosts.
	Gateways []string `cbor:"4,keyasint,omitempty"`
	// Quorum has nobody hold it who does not see more than half of the gateways.
	Quorum bool `cbor:"5,keyasint,omitempty"`
	// Author is the name of the host where it was made, for people.
	Author string `cbor:"6,keyasint,omitempty"`
	// Labels are what it asks for of containers' labels, one requirement each, as package policy reads them: only those that
	// meet all of them leave by it. One with Labels is a LabelEgress.
	Labels []string `cbor:"7,keyasint,omitempty"`
}

// Body is an egress as it is written.
func (e Egress) Body() Body {
	if len(e.Labels) > 0 {
		return LabelEgress(e)
	}
	return e
}

// Key names the record of an egress.
func (e Egress) Key() Key { return Key{KindEgress, e.Name} }

func (Egress) speaker() NodeID { return "" }

// MaxEgressGateways and MaxEgressNetworks are how many an egress may have.
const (
	MaxEgressGateways = 64
	MaxEgressNetworks = 64
)

func (e Egress) validate() error {
	if len(e.Labels) > 0 {
		return errors.Join(e.valid(), errors.New("it is of all containers of its networks, and asks for labels"))
	}
	return e.valid()
}

func (e Egress) valid() error {
	err := errors.Join(name("name", e.Name), optional("author", e.Author))
	if strings.Contains(e.Name, "/") || len(e.Name) > maxID {
		err = errors.Join(err, fmt.Errorf("its name has a slash in it, or more than %d bytes", maxID))
	}
	if len(e.Networks) == 0 || len(e.Networks) > MaxEgressNetworks {
		err = errors.Join(err, fmt.Errorf("%d networks, from 1 to %d", len(e.Networks), MaxEgressNetworks))
	}
	if len(e.Gateways) > MaxEgressGateways {
		err = errors.Join(err, fmt.Errorf("%d gateways, at most %d", len(e.Gateways), MaxEgressGateways))
	}
	for _, n := range e.Networks {
		err = errors.Join(err, name("network", n))
	}
	for _, g := range e.Gateways {
		err = errors.Join(err, name("gateway", g))
	}
	if len(e.Addrs) == 0 || len(e.Addrs) > 2 || len(e.Addrs) == 2 && e.Addrs[0].Is4() == e.Addrs[1].Is4() {
		err = errors.Join(err, errors.New("it has one address, or one of each family"))
	}
	for _, a := range e.Addrs {
		if !a.IsValid() {
			err = errors.Join(err, errors.New("an empty address"))
		}
		err = errors.Join(err, unicast("address", a))
	}
	return err
}

// LedBy reports whether a host is one of its gateways.
func (e Egress) LedBy(n Node) bool {
	return len(e.Gateways) == 0 || slices.ContainsFunc(e.Gateways, func(g string) bool { return g == n.Name || slices.Contains(n.Labels, g) })
}

// Addr returns its address of a family; invalid: it has none.
func (e Egress) Addr(v6 bool) netip.Addr {
	i := slices.IndexFunc(e.Addrs, func(a netip.Addr) bool { return a.Is6() == v6 })
	if i < 0 {
		return netip.Addr{}
	}
	return e.Addrs[i]
}
