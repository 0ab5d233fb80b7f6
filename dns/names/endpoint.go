package names

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/cluster"
)

// shortID is how many digits of a container's ID are a name of it, as in Docker.
const shortID = 12

type endpoint struct {
	id        string
	version   cluster.Version
	network   *network
	host      cluster.NodeID
	container string
	client    bool // no sandbox of its own, where connections to services could be led
	addrs     []netip.Addr
	named     int      // how many of them, the first ones, its names have
	names     []string // in lower case, each once
	label     string   // as it is to be shown in a PTR; "" if it has no name yet
}

func newEndpoint(b cluster.Endpoint, v cluster.Version, n *network) *endpoint {
	e := &endpoint{id: b.ID, version: v, network: n, host: b.Host, container: b.Container, client: b.IsClient(), addrs: b.Addrs, named: len(b.Named())}
	short := b.Container
	if len(short) > shortID {
		short = short[:shortID]
	}
	e.label = b.Name
	if e.label == "" {
		e.label = short
	}
	e.names = make([]string, 0, len(b.Aliases)+len(b.More)+2)
	for _, name := range append([]string{b.Name, short}, b.AllAliases()...) {
		if name = Canonical(name); name != "" {
			e.names = append(e.names, name)
		}
	}
	slices.Sort(e.names)
	e.names = slices.Compact(e.names)
	return e
}

// Canonical returns a name as the index compares it: in lower case (RFC 4343) and
// without the dot at its end.
func Canonical(name string) string {
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// newer orders endpoints by their last write. Two have one address only for as
// long as the end of the one is heard of later than the start of the other.
func (e *endpoint) newer(than *endpoint) bool {
	a, b := e.version, than.version
	if a.Counter != b.Counter {
		return a.Counter > b.Counter
	}
	return a.Node > b.Node
}

// multi is a map to sets of endpoints. Nearly all of them have one element, which
// then needs no memory of its own.
type multi[K comparable] map[K]set

type set struct {
	one  *endpoint
	more *[]*endpoint // all of them if there are two or more; one is then nil. A pointer: there are half a million sets
}

func (s *set) all() []*endpoint {
	switch {
	case s.one != nil:
		return []*endpoint{s.one}
	case s.more != nil:
		return *s.more
	}
	return nil
}

// spread is 1 if several hosts have endpoints of the set, else 0.
func (s set) spread() int {
	if s.more != nil {
		for _, e := range *s.more {
			if e.host != (*s.more)[0].host {
				return 1
			}
		}
	}
	return 0
}

func (m multi[K]) add(k K, e *endpoint) {
	s := m[k]
	switch {
	case s.one == nil && s.more == nil:
		s.one = e
	case s.one != nil:
		s.one, s.more = nil, &[]*endpoint{s.one, e}
	default:
		*s.more = append(*s.more, e)
	}
	m[k] = s
}

func (m multi[K]) remove(k K, e *endpoint) {
	s := m[k]
	i := -1
	if s.more != nil {
		i = slices.Index(*s.more, e)
	}
	switch {
	case s.one == e:
		delete(m, k)
	case i < 0:
	case len(*s.more) == 2:
		m[k] = set{one: (*s.more)[1-i]}
	default:
		list := *s.more
		last := len(list) - 1
		list[i], list[last] = list[last], nil
		*s.more = list[:last]
	}
}
