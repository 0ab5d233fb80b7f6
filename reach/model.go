package reach

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
)

// Model is what a host knows at one moment of what the hosts of its cluster reach: of itself
// by its own eyes, of the others by their records. Its methods are pure.
type Model struct {
	Self  cluster.NodeID
	Here  []Thing // of this host
	Snap  *cluster.Snapshot
	CIDRs []netip.Prefix // the cluster's ranges
}

// Taken is something that a host reaches by itself in a range of the cluster.
type Taken struct {
	Prefix netip.Prefix
	By     string // for people
	Soft   bool   // it may come to be: a network is made there where no other room is left
}

// Barred returns those of the subnets that this host, or anywhere one that is known, cannot
// take, and why: it has something else there, which is never taken away.
func (m Model) Barred(subnets []netip.Prefix, anywhere bool) map[netip.Prefix]error {
	out, x := map[netip.Prefix]error{}, newIndex(subnets)
	note := func(things []Thing, of string) {
		for _, c := range x.judge(things, m.CIDRs) {
			if out[c.Subnet] == nil {
				out[c.Subnet] = errors.New("it overlaps " + c.By.of(of))
			}
		}
	}
	note(slices.Concat(Hosts(m.Snap), m.Here), "this host")
	if anywhere {
		for n := range m.others() {
			note(Of(n), "host "+nameOf(n))
		}
	}
	return out
}

// of names a thing together with whose it is.
func (t Thing) of(host string) string {
	if t.Kind == Host {
		return t.String()
	}
	return fmt.Sprintf("%s of %s", t, host)
}

func nameOf(n cluster.Node) string { return cmp.Or(n.Name, string(n.ID)) }

func (m Model) others() func(func(cluster.Node) bool) {
	return func(yield func(cluster.Node) bool) {
		for n := range cluster.All[cluster.Node](m.Snap) {
			if n.ID != m.Self && !yield(n) {
				return
			}
		}
	}
}

// Avoid returns what is not to be part of a new network that asks for no subnet of its own:
// what any host has in a range of the cluster. Soft is what its Docker may take there some day.
func (m Model) Avoid(cidr netip.Prefix) (out []Taken) {
	note := func(things []Thing, of string) {
		for _, t := range things {
			if t.Unwise(cidr, m.CIDRs) {
				out = append(out, Taken{Prefix: t.Prefix, By: t.of(of), Soft: t.Kind == Pool})
				if near, ok := t.near(); ok {
					out = append(out, Taken{Prefix: near, By: "what may be beside " + t.of(of), Soft: true})
				}
			}
		}
	}
	note(slices.Concat(Hosts(m.Snap), m.Here), "this host")
	for n := range m.others() {
		note(Of(n), "host "+nameOf(n))
	}
	return out
}

// nearby is the prefix length of IPv4 in which a cloud's other machines may be (Google's are
// of this length) that gives its hosts addresses without a prefix.
const nearby = 20

// near is where the neighbours of a host's address may be, which its prefix may not tell.
func (t Thing) near() (netip.Prefix, bool) {
	if t.Kind != Host || !t.Prefix.Addr().Is4() {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(t.Prefix.Addr(), nearby).Masked(), true
}

// Clear returns those of the prefixes in which this host has nothing of its own, nor any
// host its address.
func (m Model) Clear(cidrs ...netip.Prefix) (out []netip.Prefix) {
	things := slices.Concat(Hosts(m.Snap), m.Here)
	for _, c := range cidrs {
		if !slices.ContainsFunc(things, func(t Thing) bool { return t.Unwise(c, m.CIDRs) }) {
			out = append(out, c)
		}
	}
	return out
}

// Finding is a subnet of the cluster that a host cannot take.
type Finding struct {
	Network string
	Subnet  netip.Prefix
	Host    string // by name; "": every host
	Self    bool   // it is this host
	By      Thing
}

// Findings are all that are known, in order: this host's first.
func (m Model) Findings() (list []Finding) {
	network := map[netip.Prefix]string{}
	var subnets []netip.Prefix
	for s := range cluster.All[cluster.Subnet](m.Snap) {
		network[s.Prefix] = s.Network
		subnets = append(subnets, s.Prefix)
	}
	if len(subnets) == 0 {
		return nil
	}
	x := newIndex(subnets)
	note := func(things []Thing, host string, self bool) {
		for _, c := range x.judge(things, m.CIDRs) {
			list = append(list, Finding{network[c.Subnet], c.Subnet, host, self, c.By})
		}
		for _, t := range things {
			if of, has := network[t.Prefix]; has && t.Kind == Rival {
				list = append(list, Finding{of, t.Prefix, host, self, t})
			}
		}
	}
	self, _ := cluster.Get[cluster.Node](m.Snap, string(m.Self))
	note(m.Here, nameOf(self), true)
	note(Hosts(m.Snap), "", false)
	for n := range m.others() {
		note(Of(n), nameOf(n), false)
	}
	slices.SortStableFunc(list, func(a, b Finding) int {
		return cmp.Or(compareBool(b.Self, a.Self), cmp.Compare(a.Network, b.Network), comparePrefix(a.Subnet, b.Subnet), cmp.Compare(a.Host, b.Host))
	})
	return list
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// What says it for people.
func (f Finding) What() string {
	if f.By.Kind == Host {
		return fmt.Sprintf("no host can take the subnet %s of network %s: it overlaps %s", f.Subnet, f.Network, f.By)
	}
	if f.By.Kind == Rival {
		return fmt.Sprintf("Docker of %s has a network %s with the subnet %s, which is network %s's: no container of %s can use it", f.who(), f.By.Name, f.Subnet, f.Network, f.By.Name)
	}
	return fmt.Sprintf("%s cannot take the subnet %s of network %s: it overlaps %s there, which stays as it is", f.who(), f.Subnet, f.Network, f.By)
}

func (f Finding) who() string {
	if f.Self {
		return "this host"
	}
	return "host " + f.Host
}

// Note says it in few words, in a line about the network.
func (f Finding) Note() string {
	switch f.By.Kind {
	case Host:
		return "on no host, since it is around " + f.By.String()
	case Rival:
		return fmt.Sprintf("not the network %s of host %s, which has the same subnet", f.By.Name, f.Host)
	}
	return fmt.Sprintf("not on %s, which has %s", f.Host, f.By)
}

// Do says what to do about it.
func (f Finding) Do() string {
	if f.By.Kind == Host {
		return fmt.Sprintf("make network %s anew with another --subnet; until then no host reaches its containers, which reach each other", f.Network)
	}
	if f.By.Kind == Rival {
		return fmt.Sprintf("on %s: docker network rm %s, and make it with a subnet of its own, or with none given; network %s is not concerned", f.who(), f.By.Name, f.Network)
	}
	return fmt.Sprintf("make network %s anew with %s: then all goes on by itself. Until then %s does not reach its containers, and its Docker does not get the network; containers there that have it reach each other only",
		f.Network, f.By.Remedy(), f.who())
}
