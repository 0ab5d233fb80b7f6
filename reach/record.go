package reach

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/grapevine-net/grapevine/cluster"
)

// Of is what a host's record says that it reaches.
func Of(n cluster.Node) []Thing {
	list := make([]Thing, 0, len(n.Reaches))
	for _, r := range n.Reaches {
		list = append(list, Thing{r.Prefix, Kind(r.Kind), r.Name})
	}
	return list
}

// Record is what a host's record says of its things: all, or what matters most. That is
// first what the cluster's subnets meet now, then what its ranges might, then the rest.
func Record(things []Thing, subnets, cidrs []netip.Prefix) []cluster.Reach {
	met, x := map[Thing]int{}, newIndex(subnets)
	for _, t := range things {
		met[t] = matters(t, x, cidrs)
	}
	list := slices.DeleteFunc(slices.Clone(things), func(t Thing) bool {
		return t.Kind == Host || t.Prefix.Addr().IsLoopback() || t.Kind == Pool && met[t] > 1
	})
	slices.SortFunc(list, func(a, b Thing) int {
		return cmp.Or(cmp.Compare(met[a], met[b]), cmp.Compare(rank(a.Kind), rank(b.Kind)), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()), compareThing(a, b))
	})
	list = list[:min(len(list), cluster.MaxReaches)]
	slices.SortFunc(list, compareThing)
	var out []cluster.Reach
	for _, t := range list {
		out = append(out, cluster.Reach{Prefix: t.Prefix, Kind: uint8(t.Kind), Name: short(t.Name)})
	}
	return out
}

// matters is 0 for what bars a subnet of the cluster, 1 for what is in the way in one of its
// ranges, and else 2.
func matters(t Thing, x index, cidrs []netip.Prefix) int {
	if t.Kind == Rival {
		return 0
	}
	for p := range x.overlapping(t.Prefix) {
		if t.Bars(p, cidrs) {
			return 0
		}
	}
	for _, c := range cidrs {
		if t.Prefix.Overlaps(c) && !t.around(c, cidrs) {
			return 1
		}
	}
	return 2
}

// short cuts a name to what a record has room for.
func short(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && r != utf8.RuneError {
			return r
		}
		return '?'
	}, name)
	if len(name) <= cluster.MaxReachName {
		return name
	}
	return strings.ToValidUTF8(name[:cluster.MaxReachName-1], "") + "~"
}

func compareThing(a, b Thing) int {
	return cmp.Or(comparePrefix(a.Prefix, b.Prefix), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}
