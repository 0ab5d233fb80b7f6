package service

import (
	"slices"
	"strings"
)

// fronts are those of a network's services, as of when somebody asked last.
type fronts struct {
	all   map[Front]Back
	owner map[Front]string   // the service whose one is
	of    map[string][]Front // by service
	stale map[string]bool    // services whose fronts are to be made anew
	clash bool               // two services have one address, as two sides of a partition may have it: all are made anew
}

func newFronts() fronts {
	return fronts{all: map[Front]Back{}, owner: map[Front]string{}, of: map[string][]Front{}, stale: map[string]bool{}}
}

// fronts returns those of a network's services, and notes what has changed of them.
func (b *Book) fronts(name string) map[Front]Back {
	n := b.networks[name]
	f := &n.made
	if len(f.stale) == 0 {
		return f.all
	}
	whole := f.clash
	if whole {
		n.all()
	}
	if b.remake(name, n); f.clash && !whole {
		n.all()
		b.remake(name, n)
	}
	return f.all
}

// remake makes the fronts of stale services anew, and notes what has changed.
func (b *Book) remake(name string, n *network) {
	f := &n.made
	f.clash = false
	before := map[Front]Back{}
	var services []string
	for s := range f.stale {
		services = append(services, s)
		for _, front := range f.of[s] {
			before[front] = f.all[front]
			delete(f.all, front)
			delete(f.owner, front)
		}
		delete(f.of, s)
	}
	clear(f.stale)
	slices.Sort(services) // of two with one address the first has it
	now := map[Front]Back{}
	for _, s := range services {
		record, there := n.services[s]
		if !there {
			continue
		}
		backs := map[Front]Back{}
		b.backs(n, record, backs)
		for front, back := range backs {
			if f.owner[front] != "" {
				f.clash = true
				continue
			}
			was := before[front]
			back.slots = spread(was, back.To)
			f.all[front], f.owner[front], now[front] = back, s, back
			f.of[s] = append(f.of[s], front)
		}
	}
	for front, was := range before {
		is, there := now[front]
		if !there || !was.equal(is) || was.sticky != is.sticky {
			b.log.add(change{name, front, &was, there, is})
		}
	}
	for front, is := range now {
		if _, had := before[front]; !had {
			b.log.add(change{name, front, nil, true, is})
		}
	}
}

// changes are the last ones of fronts, in order.
type changes struct {
	list []change
	gone int // how many there were before these
}

type change struct {
	network string
	front   Front
	was     *Back // nil: it was not there
	there   bool
	is      Back
}

// remembered bounds how many changes are: who asks after more has all anew.
const remembered = 4096

func (c *changes) add(one change) {
	if len(c.list) == remembered {
		c.gone += remembered / 2
		c.list = slices.Clone(c.list[remembered/2:])
	}
	c.list = append(c.list, one)
}

// Mark is where a Book was when it was asked for some endpoints. The zero Mark is nowhere.
type Mark struct {
	networks string // of the endpoints; "" for each that was not there
	changes  int
	set      bool
}

func (b *Book) mark(endpoints []string) Mark {
	var networks []string
	for _, id := range endpoints {
		if e := b.endpoints[id]; e != nil {
			networks = append(networks, e.network)
		} else {
			networks = append(networks, "")
		}
	}
	return Mark{strings.Join(networks, "\n"), b.log.gone + len(b.log.list), true}
}

// Since returns what has changed for a container with these endpoints since the book was at a Mark, which it returned for
// the same ones and Stays: the fronts that differ, as they were and as they are. false: nobody knows; ask for the whole Table.
func (b *Book) Since(m Mark, endpoints []string, stays Stays) (from, to Table, now Mark, known bool) {
	networks := map[string][]string{} // to the endpoints
	for _, id := range endpoints {
		if e := b.endpoints[id]; e != nil {
			b.fronts(e.network)
			networks[e.network] = append(networks[e.network], id)
		}
	}
	now = b.mark(endpoints)
	if !m.set || m.networks != now.networks || m.changes < b.log.gone {
		return nil, nil, now, false
	}
	from, to = Table{}, Table{}
	seen := map[Front]bool{}
	for _, c := range b.log.list[m.changes-b.log.gone:] {
		for _, id := range networks[c.network] {
			if !seen[c.front] && c.was != nil {
				from[c.front] = c.was.of(id, stays.at(c.front))
			}
			seen[c.front] = true
			if delete(to, c.front); c.there {
				to[c.front] = c.is.of(id, stays.at(c.front))
			}
		}
	}
	for f := range seen {
		is, there := to[f]
		if was, had := from[f]; had == there && was.equal(is) {
			delete(from, f)
			delete(to, f)
		}
	}
	stays.note(from, to) // last: all before are by what it was
	return from, to, now, true
}
