package service

import (
	"cmp"
	"hash/fnv"
	"io"
	"maps"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
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
	// ids are the endpoints of To. What a container gets of it has none.
	ids []string
	// slots say which of To each slot leads to (spread); nil: in their order.
	slots []uint8
}

func (b Back) equal(o Back) bool {
	return slices.Equal(b.To, o.To) && slices.Equal(b.There, o.There) && slices.Equal(b.ids, o.ids) && slices.Equal(b.slots, o.slots)
}

// Table is what one container's connections are led to.
type Table map[Front]Back

// Slots are the most that a Front has of, one for each of To: a connection takes one at random.
const Slots = 60

// Stays is with which replica of a service with affinity a container stays, by front. What it is led to is noted there. nil: it
// is led as one that comes anew.
type Stays map[Front]netip.Addr

// at is where a front leads: one that comes later, such as another port, leads where pings of its service do.
func (s Stays) at(f Front) netip.Addr {
	if a, is := s[f]; is {
		return a
	}
	return s[f.pings()]
}

// pings is the front that every service has at an address.
func (f Front) pings() Front {
	if f.Addr.Is4() {
		return Front{f.Addr, ICMP, 0}
	}
	return Front{f.Addr, ICMPv6, 0}
}

// note keeps what fronts are led to; of those that are gone, or have no affinity, nothing.
func (s Stays) note(from, to Table) {
	if s == nil {
		return
	}
	for f := range from {
		if _, still := to[f]; !still {
			delete(s, f)
		}
	}
	for f, b := range to {
		switch {
		case !b.sticky:
			delete(s, f)
		case len(b.To) == 1:
			s[f] = b.To[0].Addr()
		}
	}
}

// Table returns what the connections of a container with these endpoints are led to, and where the book is: Since says
// what has changed from there.
func (b *Book) Table(endpoints []string, stays Stays) (t Table, at Mark) {
	t = Table{}
	for _, id := range endpoints {
		if e := b.endpoints[id]; e != nil {
			for f, back := range b.fronts(e.network) {
				t[f] = back.of(id, stays.at(f))
			}
		}
	}
	maps.DeleteFunc(stays, func(f Front, _ netip.Addr) bool { _, is := t[f]; return !is })
	stays.note(nil, t)
	return t, b.mark(endpoints)
}

// back returns what a service's fronts of an address are led to.
func (b *Book) backs(n *network, s cluster.Service, into map[Front]Back) {
	replicas := b.replicas(n, s)
	for _, vip := range n.addrs(s) {
		var in, there []netip.Addr
		var ids []string
		for _, r := range replicas {
			at := slices.IndexFunc(r.Named(), func(a netip.Addr) bool { return a.Is4() == vip.Is4() })
			if at < 0 {
				continue
			}
			there = append(there, r.Addrs[at])
			if r.In {
				in, ids = append(in, r.Addrs[at]), append(ids, r.ID)
			}
		}
		put := func(proto uint8, port, target uint16) {
			back := Back{There: there, sticky: s.Affinity, ids: ids}
			for _, a := range in {
				back.To = append(back.To, netip.AddrPortFrom(a, target))
			}
			into[Front{vip, proto, port}] = back
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

// of returns what a container with an endpoint of that ID gets of it: one replica where it is to stay with one, which is the one that it
// has while that gets new connections, and of more than there are slots as many, other ones for each container. By IPv4 and by IPv6
// it gets the same ones: a program that tries both is not to have two.
func (b Back) of(endpoint string, has netip.Addr) Back {
	most, ids := Slots, b.ids
	b.ids = nil
	if b.sticky {
		most = 1
	}
	if len(b.To) <= most {
		return b
	}
	if i := slices.IndexFunc(b.To, func(a netip.AddrPort) bool { return a.Addr() == has }); b.sticky && i >= 0 {
		b.To, b.slots = b.To[i:i+1], nil
		return b
	}
	type weighed struct {
		weight uint64
		to     netip.AddrPort
	}
	list := make([]weighed, len(b.To))
	for i, to := range b.To { // rendezvous hashing: who goes takes nobody else's along
		h := fnv.New64a()
		_, _ = io.WriteString(h, endpoint+"/"+ids[i])
		list[i] = weighed{mix(h.Sum64()), to}
	}
	slices.SortFunc(list, func(x, y weighed) int { return cmp.Or(cmp.Compare(y.weight, x.weight), x.to.Compare(y.to)) })
	b.To, b.slots = make([]netip.AddrPort, most), nil
	for i := range b.To {
		b.To[i] = list[i].to
	}
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

// Slot is what a connection is led to that takes it, of as many as To.
func (b Back) Slot(i int) netip.AddrPort {
	if b.slots != nil {
		return b.To[b.slots[i]]
	}
	return b.To[i]
}

// spread says which of to each slot leads to; of the slots before as many stay as can.
func spread(before Back, to []netip.AddrPort) []uint8 {
	if len(to) == 0 || len(to) > Slots {
		return nil
	}
	at := map[netip.AddrPort]uint8{}
	for i, a := range to {
		at[a] = uint8(i)
	}
	slots, placed := make([]uint8, len(to)), make([]bool, len(to))
	var open []int
	for i := range slots {
		if i < len(before.To) {
			if k, there := at[before.Slot(i)]; there {
				slots[i], placed[k] = k, true
				continue
			}
		}
		open = append(open, i)
	}
	next := 0
	for _, i := range open {
		for placed[next] {
			next++
		}
		slots[i], placed[next] = uint8(next), true
	}
	return slots
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
