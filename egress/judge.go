package egress

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/cluster"
)

// Gateway is a host that may hold an address.
type Gateway struct {
	ID    cluster.NodeID
	Name  string
	Alive bool // as this host sees it
	// Unheard: it has not shown since this host was last stalled that it is there, so that it makes up no quorum.
	Unheard bool
	// Asked: it is not known yet whether it is, since it was asked but a moment ago.
	Asked bool
	// Unfit: it says that it cannot hold the address now, for want of an interface, or of the link of NIC.
	Unfit bool
	NIC   string
}

// Gateways returns the hosts that may hold an egress, in the order in which they take it (the highest of a hash of
// both first, so that several addresses spread over them, and that all hosts agree).
func Gateways(snap *cluster.Snapshot, e cluster.Egress, alive func(cluster.NodeID) bool) (list []Gateway) {
	for n := range cluster.All[cluster.Node](snap) {
		if len(e.Labels) > 0 && !n.LabelEgress { // it does not know that it is one
			continue
		}
		if !n.Edge && e.LedBy(n) { // an edge host forwards nothing
			g := Gateway{ID: n.ID, Name: n.Name, Alive: alive(n.ID)}
			u, _ := cluster.Get[cluster.Unfit](snap, string(n.ID))
			if i := slices.IndexFunc(u.Egresses, func(c cluster.UnfitCase) bool { return c.Egress == e.Name }); i >= 0 {
				g.Unfit, g.NIC = true, u.Egresses[i].NIC
			}
			list = append(list, g)
		}
	}
	weight := func(g Gateway) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(e.Name + "/" + string(g.ID))) // never fails
		return mix(h.Sum64())
	}
	slices.SortFunc(list, func(a, b Gateway) int { return cmp.Or(cmp.Compare(weight(b), weight(a)), cmp.Compare(a.ID, b.ID)) })
	return list
}

// Able reports whether a host's agent can hold all addresses of an egress: an older one holds that of IPv4, and thinks it all.
func Able(n cluster.Node, e cluster.Egress) bool { return n.HoldsIPv6 || !e.Addr(true).IsValid() }

// mix spreads the last bytes' difference over all bits (the finalizer of MurmurHash3).
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// Verdict is what this host is to do about an egress.
type Verdict int

// The verdicts.
const (
	Leave Verdict = iota // another host holds it, or is to: this one has it no more, at once
	Hold                 // this host holds it
	Take                 // nobody does: this host takes it when its turn comes, if it can
)

// hear is how many turns who let an address go waits until it has heard what the others wrote meanwhile.
const hear = 2

// Case is what a verdict depends on.
type Case struct {
	Self     cluster.NodeID
	Egress   cluster.Egress
	Gateways []Gateway      // in their order
	Holder   cluster.NodeID // by the record; "": nobody
	Has      bool           // this host has the address from when it held it
	Twice    bool           // another egress has its address, and comes first
	Lost     []netip.Addr   // of its addresses those that another egress has, which comes first: here they are that one's
	Here     bool           // it has the address now
	Young    bool           // its agent began a moment ago, and has not met all others yet
	Alone    bool           // no other gateway could take it, or none would hear that it may
}

// Judge says what this host is to do, and in which turn it takes: 0 at once, others later, if those before it cannot.
//
// A holder keeps the address for as long as it lives: it is only taken from who is in doubt, dead or no gateway. So
// who comes back leaves it where it is. Of two that hold it after a partition the one has lost that reads the other's
// name in the record, whose later version is the same for all.
func (c Case) Judge() (v Verdict, turn int) {
	i := slices.IndexFunc(c.Gateways, func(g Gateway) bool { return g.ID == c.Self })
	switch {
	case i < 0 || c.Twice:
		return Leave, 0
	case c.Egress.Quorum && !c.Quorum():
		// What it holds it keeps until it can know who is there.
		if c.Here && c.Holder == c.Self && (c.Young || c.may()) {
			return Hold, 0
		}
		return Leave, 0
	}
	switch {
	case c.Holder == c.Self && c.Egress.Quorum && !c.Here:
		// It let go when it could not know who is there, and another one may have taken it since: the record that says so comes
		// with the hosts that are heard again, and not before them.
		return Take, hear
	case c.Holder == c.Self:
		return Hold, 0
	case c.Has && c.Holder != "": // whether that one is alive or not: it has taken it
		return Leave, 0
	}
	for j, g := range c.Gateways {
		switch {
		case g.ID == c.Holder && g.Alive:
			return Leave, 0
		case j < i && g.Alive && !g.Unfit:
			turn++
		}
	}
	return Take, turn
}

// Others reports whether another gateway could take the address from this host.
func (c Case) Others() bool {
	return slices.ContainsFunc(c.Gateways, func(g Gateway) bool { return g.ID != c.Self && g.Alive && !g.Unfit })
}

// Gateway reports whether this host is a gateway.
func (c Case) Gateway() bool {
	return slices.ContainsFunc(c.Gateways, func(g Gateway) bool { return g.ID == c.Self })
}

// Quorum reports whether more than half of the gateways are alive, by what this host was told since it was last stalled:
// while it was, another one may have taken the address.
func (c Case) Quorum() bool {
	return c.more(func(g Gateway) bool { return g.Alive && !g.Unheard })
}

// may reports whether they are if those do answer that were asked just now.
func (c Case) may() bool {
	return c.more(func(g Gateway) bool { return g.Alive && (!g.Unheard || g.Asked) })
}

// more reports whether something is true of more than half of the gateways.
func (c Case) more(is func(Gateway) bool) bool {
	n := 0
	for _, g := range c.Gateways {
		if is(g) {
			n++
		}
	}
	return 2*n > max(len(c.Gateways), len(c.Egress.Gateways))
}

// Hear says of the gateways of an egress, if it wants a quorum, which ones were not heard.
func Hear(e cluster.Egress, list []Gateway, hear func(cluster.NodeID) (heard, known bool)) []Gateway {
	if e.Quorum {
		for i, g := range list {
			heard, known := hear(g.ID)
			list[i].Unheard, list[i].Asked = !heard, !known
		}
	}
	return list
}

// Cases are those of all egresses, by name.
func Cases(snap *cluster.Snapshot, self cluster.NodeID, alive func(cluster.NodeID) bool, hear func(cluster.NodeID) (heard, known bool)) (list []Case) {
	for _, e := range All(snap) {
		c := Case{Self: self, Egress: e.Egress, Gateways: Hear(e.Egress, Gateways(snap, e.Egress, alive), hear), Twice: e.Twice, Lost: e.Lost}
		h, _ := cluster.Get[cluster.EgressHolder](snap, e.Name)
		c.Holder = h.Host
		list = append(list, c)
	}
	return list
}

// Listed is an egress among the others.
type Listed struct {
	cluster.Egress
	// Twice: one that comes before has its name, or an address of it: Lost are these. Taken are those of its networks that one before has.
	Twice bool
	Lost  []netip.Addr
	Taken []string
	// Clashes say of all that, and of labels that one before asks for of the same network, which one it is.
	Clashes []Clash
}

// Clash is something that an egress cannot have, since another one has it: its name, an address or a network.
type Clash struct {
	With    string
	Addr    netip.Addr
	Network string
}

// twins is at the end of the name of an egress with labels that has another one's.
const twins = "/labels"

// All returns all egresses by name. Of two that contradict each other, which two hosts made at the same time, the first
// by name counts, for all hosts alike.
func All(snap *cluster.Snapshot) (list []Listed) {
	var all []cluster.Egress
	for e := range cluster.All[cluster.Egress](snap) {
		all = append(all, e)
	}
	for e := range cluster.All[cluster.LabelEgress](snap) {
		if _, twin := cluster.Get[cluster.Egress](snap, e.Name); twin {
			e.Name += twins // no other has such a name: it is held by nobody, and what it asks for does not leave
		}
		all = append(all, cluster.Egress(e))
	}
	slices.SortFunc(all, func(a, b cluster.Egress) int { return cmp.Compare(a.Name, b.Name) })
	network, address := map[string]string{}, map[netip.Addr]string{}
	for _, e := range all {
		l := Listed{Egress: e}
		if twin, is := strings.CutSuffix(e.Name, twins); is {
			l.Twice, l.Clashes = true, append(l.Clashes, Clash{With: twin})
		}
		for _, a := range e.Addrs {
			if first, is := address[a]; is {
				l.Twice, l.Lost, l.Clashes = true, append(l.Lost, a), append(l.Clashes, Clash{With: first, Addr: a})
				continue
			}
			address[a] = e.Name
		}
		for _, n := range e.Networks {
			whom := strings.Join(append([]string{n}, e.Labels...), "/")
			first, is := network[whom]
			if !is {
				network[whom] = e.Name
				continue
			}
			l.Clashes = append(l.Clashes, Clash{With: first, Network: n})
			if len(e.Labels) == 0 {
				l.Taken = append(l.Taken, n)
			}
		}
		list = append(list, l)
	}
	return list
}

// Get returns the egress of a name, of whichever kind.
func Get(snap *cluster.Snapshot, name string) (cluster.Egress, bool) {
	if e, ok := cluster.Get[cluster.Egress](snap, name); ok {
		return e, true
	}
	e, ok := cluster.Get[cluster.LabelEgress](snap, name)
	return cluster.Egress(e), ok
}
