package cluster

import (
	"maps"
	"slices"
)

// maxHeld bounds what is held of each writer. What is beyond comes again.
const maxHeld = 256

// pending has what this host does not believe, or not yet, by writer and counter.
// Others may want it, or more may come that proves it: the mark stays below.
type pending map[NodeID]map[uint64]*Record

// hold keeps a record that is not believed, and the writer's mark below it.
func (p *pending) hold(r *Record) {
	recs := (*p)[r.Version.Node]
	if len(recs) >= maxHeld {
		return
	}
	if *p == nil {
		*p = pending{}
	}
	if recs == nil {
		recs = map[uint64]*Record{}
		(*p)[r.Version.Node] = recs
	}
	recs[r.Version.Counter] = kept(r)
}

// release ends hold.
func (p pending) release(v Version) {
	delete(p[v.Node], v.Counter)
	if len(p[v.Node]) == 0 {
		delete(p, v.Node)
	}
}

// lowest returns the lowest counter that is held of a writer, and false if
// nothing is.
func (p pending) lowest(node NodeID) (low uint64, ok bool) {
	for counter := range p[node] {
		if !ok || counter < low {
			low, ok = counter, true
		}
	}
	return low, ok
}

// all is what is held, in the order of the versions.
func (p pending) all() (list []*Record) {
	for _, recs := range p {
		list = slices.AppendSeq(list, maps.Values(recs))
	}
	slices.SortFunc(list, func(a, b *Record) int { return a.Version.Compare(b.Version) })
	return list
}

func (p pending) clone() pending {
	c := maps.Clone(p)
	for node, recs := range c {
		c[node] = maps.Clone(recs)
	}
	return c
}

// Pending is a record that this host does not believe: its writer has no right to
// it by all that is known here.
type Pending struct {
	Key     Key
	Version Version
	// Owner is, of a claim, a host that owns some of the numbers.
	Owner NodeID
}

// Pending returns what is not believed, in the order of the versions.
func (s *State) Pending() (list []Pending) {
	for _, r := range s.held.all() {
		list = append(list, s.unproven(r))
	}
	return list
}

func (s *State) unproven(r *Record) Pending {
	d := Pending{Key: r.Key, Version: r.Version}
	if c, ok := r.claim(); ok {
		for owner := range s.cur.ring.Counts(c.Block) {
			if owner != c.Version.By && owner > d.Owner {
				d.Owner = owner
			}
		}
	}
	return d
}

// reconsider puts in what is held and is believed now, and drops what has been
// replaced. It returns what merge returns.
func (s *State) reconsider() (added, dropped []*Record) {
	for more := len(s.held) > 0; more; {
		more = false
		for _, r := range s.held.all() {
			if !s.supersedes(r) || s.cur.foreignTombstone(r) {
				s.held.release(r.Version)
				s.heard(r)
				continue
			}
			if c, ok := r.claim(); ok && s.takesOurs(c) || !s.rights.warranted(s.cur, r) {
				continue
			}
			s.held.release(r.Version)
			dropped = append(dropped, s.apply(r)...)
			added = append(added, r)
			s.heard(r)
			more = true
		}
	}
	return added, dropped
}
