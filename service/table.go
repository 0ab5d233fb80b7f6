package service

import (
	"hash/fnv"
	"net/netip"
	"slices"
)

// Numbers of protocols (IANA).
const (
	ICMP   = 1
	TCP    = 6
	UDP    = 17
	ICMPv6 = 58
)

// Front is what a container may connect to: a port of a service's address, or with the protocol ICMP or ICMPv6 and
// port 0 the address itself, for who pings it.
type Front struct {
	Addr  netip.Addr
	Proto uint8
	Port  uint16
}

// Back is what connections to a Front are led to.
type Back struct {
	To []netip.AddrPort // in a fixed order; the port is 0 for pings
	// There are the addresses of all replicas that there are, those too that get no new connections: what is open
	// to them stays.
	There []netip.Addr
	// sticky says that a container stays with one.
	sticky bool
}

func (b Back) equal(o Back) bool { return slices.Equal(b.To, o.To) && slices.Equal(b.There, o.There) }

// Table is what one container's connections are led to.
type Table map[Front]Back

// Slots are as many as a Front has of: a connection takes one at random. Each replica has one or more; the number is
// one that most small numbers divide.
const Slots = 60

// Table returns what the connections of a container with these endpoints are led to, and a number that is another one
// when that may have changed.
func (b *Book) Table(endpoints []string) (t Table, rev uint64) {
	t = Table{}
	for _, id := range endpoints {
		e := b.endpoints[id]
		if e == nil {
			continue
		}
		n := b.networks[e.network]
		rev = max(rev, n.rev)
		for f, back := range b.fronts(n) {
			t[f] = back.of(id)
		}
	}
	return t, rev
}

// fronts returns those of a network's services.
func (b *Book) fronts(n *network) map[Front]Back {
	if n.fronts != nil {
		return n.fronts
	}
	n.fronts = map[Front]Back{}
	for _, s := range n.services {
		replicas := b.replicas(n, s)
		for _, vip := range n.addrs(s) {
			var in, there []netip.Addr
			for _, r := range replicas {
				at := slices.IndexFunc(r.Named(), func(a netip.Addr) bool { return a.Is4() == vip.Is4() })
				if at < 0 {
					continue
				}
				there = append(there, r.Addrs[at])
				if r.In {
					in = append(in, r.Addrs[at])
				}
			}
			put := func(proto uint8, port, target uint16) {
				back := Back{There: there, sticky: s.Affinity}
				for _, a := range in {
					back.To = append(back.To, netip.AddrPortFrom(a, target))
				}
				n.fronts[Front{vip, proto, port}] = back
			}
			for _, p := range s.Ports {
				switch p.Proto {
				case "tcp":
					put(TCP, p.Port, p.Target)
				case "udp":
					put(UDP, p.Port, p.Target)
				}
			}
			if vip.Is4() {
				put(ICMP, 0, 0)
			} else {
				put(ICMPv6, 0, 0)
			}
		}
	}
	return n.fronts
}

// of returns what a container with an endpoint of that ID gets of it: one replica where it is to stay with one, and
// of more than there are slots as many, other ones for each container.
func (b Back) of(endpoint string) Back {
	most := Slots
	if b.sticky {
		most = 1
	}
	if len(b.To) <= most {
		return b
	}
	weight := func(a netip.AddrPort) uint64 { // rendezvous hashing: who goes takes nobody else's along
		h := fnv.New64a()
		_, _ = h.Write([]byte(endpoint))
		_, _ = h.Write(a.Addr().AsSlice())
		return mix(h.Sum64())
	}
	to := slices.Clone(b.To)
	slices.SortFunc(to, func(x, y netip.AddrPort) int {
		if wx, wy := weight(x), weight(y); wx != wy {
			if wx > wy {
				return -1
			}
			return 1
		}
		return x.Compare(y)
	})
	b.To = to[:most]
	return b
}

// mix spreads what differs in the last bytes only over all bits (the finalizer of MurmurHash3).
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// Slot is what a connection is led to that takes it.
func (b Back) Slot(i int) netip.AddrPort { return b.To[i%len(b.To)] }

// Changes are the fronts that differ between two tables.
func Changes(from, to Table) (list []Front) {
	for f, b := range from {
		if o, there := to[f]; !there || !b.equal(o) {
			list = append(list, f)
		}
	}
	for f := range to {
		if _, there := from[f]; !there {
			list = append(list, f)
		}
	}
	return list
}

// Addrs are the addresses of a table's services, in order.
func (t Table) Addrs() (list []netip.Addr) {
	seen := map[netip.Addr]bool{}
	for f := range t {
		if !seen[f.Addr] {
			seen[f.Addr] = true
			list = append(list, f.Addr)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return list
}
