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
	addrs     []netip.Addr
	names     []string // in lower case, each once
	label     string   // as it is to be shown in a PTR; "" if it has no name yet
}

func newEndpoint(b cluster.Endpoint, v cluster.Version, n *network) *endpoint {
	e := &endpoint{id: b.ID, version: v, network: n, host: b.Host, container: b.Container, addrs: b.Addrs}
	short := b.Container
	if len(short) > shortID {
		short = short[:shortID]
	}
	e.label = b.Name
	if e.label == "" {
		e.label = short
	}
	e.names = make([]string, 0, len(b.Aliases)+2)
	for _, name := range append([]string{b.Name, short}, b.Aliases...) {
		name = Canonical(name)
		if name != "" && !slices.Contains(e.names, name) {
			e.names = append(e.names, name)
		}
	}
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
	more []*endpoint // all of them if there are two or more; one is then nil
}

func (s *set) all() []*endpoint {
	if s.one != nil {
		return []*endpoint{s.one}
	}
	return s.more
}

func (m multi[K]) add(k K, e *endpoint) {
	s := m[k]
	switch {
	case s.one == nil && s.more == nil:
		s.one = e
	case s.one != nil:
		s.one, s.more = nil, []*endpoint{s.one, e}
	default:
		s.more = append(s.more, e)
	}
	m[k] = s
}

func (m multi[K]) remove(k K, e *endpoint) {
	s := m[k]
	i := slices.Index(s.more, e)
	switch {
	case s.one == e:
		s.one = nil
	case i >= 0:
		last := len(s.more) - 1
		s.more[i], s.more[last] = s.more[last], nil
		s.more = s.more[:last]
	}
	if len(s.more) == 1 {
		s.one, s.more = s.more[0], nil
	}
	if s.one == nil && len(s.more) == 0 {
		delete(m, k)
		return
	}
	m[k] = s
}
