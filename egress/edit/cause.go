package edit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
)

// causes are problems, and the egresses that each is one of: a cable that is out is one problem, of however many egresses.
type causes []cause

type cause struct {
	api.Problem // says {egress}, {name}, {whose}, {address}, {that} and {it}
	of          []cluster.Egress
}

// add notes that an egress has a problem. What is said of another one in the same words is the same.
func (l causes) add(e cluster.Egress, p api.Problem) causes {
	i := slices.IndexFunc(l, func(c cause) bool { return c.Code == p.Code && c.What == p.What && c.Do == p.Do })
	if i < 0 {
		return append(l, cause{p, []cluster.Egress{e}})
	}
	l[i].of = append(l[i].of, e)
	return l
}

// problems are they, with the egresses named.
func (l causes) problems() (list []api.Problem) {
	for _, c := range l {
		var names, of, addrs []string
		for _, e := range c.of {
			names, of = append(names, e.Name), append(of, whose(e))
			for _, a := range e.Addrs {
				addrs = append(addrs, a.String())
			}
		}
		words := []string{"{egress}", "egress " + names[0], "{name}", names[0], "{whose}", of[0], "{address}", addresses(c.of[0]), "{that}", "that address", "{it}", "it"}
		if len(c.of) > 1 {
			words = []string{"{egress}", "egresses " + first(names), "{name}", "NAME", "{whose}", first(of), "{address}", first(addrs), "{that}", "these addresses", "{it}", "them"}
		}
		r := strings.NewReplacer(words...)
		c.What, c.Do = r.Replace(c.What), r.Replace(c.Do)
		list = append(list, c.Problem)
	}
	return list
}

// first names the first of many.
func first(names []string) string {
	const most = 3
	if len(names) <= most+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
