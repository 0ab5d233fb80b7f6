package egress

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/policy"
)

// HostLabel is a label that each container has for this, as for policies: the name of its host.
const HostLabel = "grapevine.io/host"

// Parse reads which labels a container must have to leave by an egress: role=smtp, or another expression that policies know.
func Parse(texts []string) (s policy.Selector, err error) {
	for _, text := range texts {
		r, err := policy.ParseExpression(text)
		if err != nil {
			return nil, err
		}
		s = append(s, r)
	}
	return s, nil
}

// Choice says by which egress each container leaves.
//
// One that asks for labels comes before one of the whole network. Of several that ask for a container's, the one with the
// most requirements comes first, and of those with as many the first by name.
type Choice struct {
	snap    *cluster.Snapshot
	whole   map[string]string   // by network: the egress of all its containers
	asking  map[string][]asking // by network, in the order in which they come
	special bool
}

type asking struct {
	name     string
	terms    int // requirements
	selector policy.Selector
	unread   bool // a newer agent wrote what this one cannot read: nobody knows whom it asks for
}

// NewChoice makes one of all egresses (All).
func NewChoice(snap *cluster.Snapshot, all []Listed) Choice {
	c := Choice{snap: snap, whole: map[string]string{}, asking: map[string][]asking{}}
	for _, e := range all {
		s, err := Parse(e.Labels)
		for _, n := range e.Networks {
			switch {
			case len(e.Labels) > 0:
				c.special = true
				c.asking[n] = append(c.asking[n], asking{e.Name, len(e.Labels), s, err != nil})
			case !slices.Contains(e.Taken, n):
				c.whole[n] = e.Name
			}
		}
	}
	for _, list := range c.asking {
		slices.SortStableFunc(list, func(a, b asking) int {
			return cmp.Or(cmp.Compare(b.terms, a.terms), cmp.Compare(a.name, b.name))
		})
	}
	return c
}

// Any reports whether any egress asks for labels, and Asks whether one of a network does.
func (c Choice) Any() bool                { return c.special }
func (c Choice) Asks(network string) bool { return len(c.asking[network]) > 0 }

// Of returns by which egress a container leaves; "": by its own host. It is not known while the one that it returns may
// ask for labels of the container that are not known: until they are it does not leave.
func (c Choice) Of(e cluster.Endpoint) (name string, known bool) {
	for _, a := range c.asking[e.Network] {
		switch selected, known := a.selects(c.labels(e), e.Labelled); {
		case !known:
			return a.name, false
		case selected:
			return a.name, true
		}
	}
	return c.whole[e.Network], true
}

// Others are further ones that ask for a container's labels, and come after the one by which it leaves.
func (c Choice) Others(e cluster.Endpoint) (names []string) {
	for _, a := range c.asking[e.Network] {
		if selected, known := a.selects(c.labels(e), e.Labelled); selected && known {
			names = append(names, a.name)
		}
	}
	return names[min(1, len(names)):]
}

func (a asking) selects(labels map[string]string, all bool) (selected, known bool) {
	if a.unread {
		return false, false
	}
	return a.selector.Selects(labels, all)
}

func (c Choice) labels(e cluster.Endpoint) map[string]string {
	labels := maps.Clone(e.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[HostLabel] = c.snap.HostName(e.Host)
	return labels
}

// Leaver is an address of a container of a network with an egress that asks for labels.
type Leaver struct {
	Addr          netip.Addr
	Network, Name string // Name is the container's
	Host          cluster.NodeID
	By            string // by which egress it leaves; "": by its own host
	Known         bool   // whether that is known
}

// Leaving are the addresses of all containers of such networks. Of an address that two have, as while records are on their
// way, the one on this host counts; of two here it is not known, and two elsewhere leave by no egress.
func (c Choice) Leaving(self cluster.NodeID) (list []Leaver) {
	if !c.special {
		return nil
	}
	at := map[netip.Addr]int{}
	for e := range cluster.All[cluster.Endpoint](c.snap) {
		if !c.Asks(e.Network) {
			continue
		}
		by, known := c.Of(e)
		if !known {
			by = ""
		}
		for _, a := range e.Addrs {
			l := Leaver{a, e.Network, e.Name, e.Host, by, known}
			i, twice := at[a]
			switch {
			case !twice:
				at[a] = len(list)
				list = append(list, l)
			case list[i].Host == self && e.Host == self:
				list[i].By, list[i].Known = "", false
			case e.Host == self:
				list[i] = l
			case list[i].Host != self:
				list[i].By = ""
			}
		}
	}
	return list
}
