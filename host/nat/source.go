package nat

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/coreos/go-iptables/iptables"
)

// Source is the address from which the containers of a subnet reach the outside, of this host or not.
type Source struct {
	Subnet  netip.Prefix
	Address netip.Addr
}

// sourceRules come before those that masquerade. A source that this host does not have has none: no answer
// would come back.
func (cfg Config) sourceRules(f iptables.Protocol, here map[netip.Addr]bool) (rules []string) {
	for _, s := range cfg.Sources {
		if is(f, s.Address) && is(f, s.Subnet.Addr()) && here[s.Address] {
			rules = append(rules, cfg.translate(fmt.Sprintf("-s %v ! -o %s", s.Subnet.Masked(), cfg.Interface), s.Address)...)
		}
	}
	return rules
}

// Absent are the addresses of the declared sources that this host did not have when that was looked at last, in
// order. It does not wait for iptables' lock, as others do: status asks.
func (n *NAT) Absent() []netip.Addr {
	if list := n.absent.Load(); list != nil {
		return *list
	}
	return nil
}

// noteAbsent notes what Absent returns, with mu held.
func (n *NAT) noteAbsent() {
	var list []netip.Addr
	for _, s := range n.cfg.Sources {
		if n.set && !n.here[s.Address] {
			list = append(list, s.Address)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	list = slices.Compact(list)
	n.absent.Store(&list)
}

// lookHere looks which of the sources this host has, with mu held, and reports whether that is news. It costs nothing
// where there are none. A look that fails changes nothing.
func (n *NAT) lookHere() (news bool, err error) {
	defer n.noteAbsent()
	if len(n.cfg.Sources) == 0 {
		news, n.here = n.here != nil, nil
		return news, nil
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return false, fmt.Errorf("list this host's addresses: %w", err)
	}
	had, here := n.here, map[netip.Addr]bool{}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			here[p.Addr()] = true
		}
	}
	for _, s := range n.cfg.Sources {
		news = news || had[s.Address] != here[s.Address]
	}
	n.here = here
	return news, nil
}
