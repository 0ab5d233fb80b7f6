package ports

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Holder reserves ports of the host. Hold returns a *TakenError if somebody else has
// the port; another error means that it cannot be had at all.
type Holder interface {
	Hold(Binding) error
	Release(Binding)
}

// Choice is where ports come from that a user leaves open.
type Choice struct {
	First, Last uint16 // ports to choose from
	Start       uint16 // where to begin; any number
	// Cross says that this host can answer at its IPv6 addresses, and ask a container that has
	// IPv4 only.
	Cross bool
	// Before are bindings that the container had on another network: of their ports each that a
	// request may have is tried first.
	Before []Binding

	before map[inside][]uint16 // the same, by the container's port
}

// inside is a container's port.
type inside struct {
	proto Proto
	port  uint16
}

// Assign finds bindings for each request, in this order, to the container's addresses
// (one of a family at most), and holds them. Who leaves no choice is served first: Docker
// sends requests in any order. Of what the endpoint has already, those bindings stay that
// fit; the others are in none of what is returned and still held. After an error nothing
// is held but what was before.
func Assign(reqs []Request, to []netip.Addr, have []Binding, open Choice, h Holder) ([]Binding, error) {
	want := make([][]Binding, len(reqs))
	for i, r := range reqs {
		var err error
		if want[i], err = r.pairs(to, open.Cross); err != nil {
			return nil, err
		}
	}
	found := keep(reqs, want, have)
	open.before = map[inside][]uint16{}
	for _, run := range open.Before {
		for b := range run.Each() {
			at := inside{b.Proto, b.To.Port()}
			open.before[at] = append(open.before[at], b.Host.Port())
		}
	}
	var anew []Binding
	for _, i := range order(reqs, Request.width) {
		if found[i] != nil {
			continue
		}
		var err error
		if found[i], err = reqs[i].hold(want[i], open, h); err != nil {
			releaseAll(h, anew)
			return nil, err
		}
		if reqs[i].First == 0 {
			open.Start = found[i][0].Host.Port() - open.First + 1 // what is before is taken
		}
		anew = append(anew, found[i]...)
	}
	return slices.Concat(found...), nil
}

// keep finds, for as many requests as it can, bindings among those that there are: whose
// range ends first takes the lowest port, which is the most that intervals can get.
func keep(reqs []Request, want [][]Binding, have []Binding) [][]Binding {
	found := make([][]Binding, len(reqs))
	left := index(have)
	for _, i := range order(reqs, Request.end) {
		for _, port := range left.ports(want[i][0]) {
			if got := at(want[i], port); reqs[i].allows(port) && left.take(got) {
				found[i] = got
				break
			}
		}
	}
	return found
}

// shelf is bindings of one port each, by all but the host's port.
type shelf map[Binding]map[uint16]bool

func index(have []Binding) shelf {
	s := shelf{}
	for _, run := range have {
		for b := range run.Each() {
			k, port := b.open()
			if s[k] == nil {
				s[k] = map[uint16]bool{}
			}
			s[k][port] = true
		}
	}
	return s
}

// open takes the host's port out of a binding of one port.
func (b Binding) open() (Binding, uint16) {
	port := b.Host.Port()
	b.Host = netip.AddrPortFrom(b.Host.Addr(), 0)
	return b, port
}

// ports are the host's at which the first port of want is found, in order.
func (s shelf) ports(want Binding) []uint16 {
	want.More = 0
	return slices.Sorted(maps.Keys(s[want]))
}

// take takes all ports of all bindings out, or none.
func (s shelf) take(list []Binding) bool {
	for _, run := range list {
		for b := range run.Each() {
			if k, port := b.open(); !s[k][port] {
				return false
			}
		}
	}
	for _, run := range list {
		for b := range run.Each() {
			k, port := b.open()
			delete(s[k], port)
		}
	}
	return true
}

// order returns the requests' indexes by a number, the least first.
func order(reqs []Request, by func(Request) int) []int {
	out := make([]int, len(reqs))
	for i := range out {
		out[i] = i
	}
	slices.SortStableFunc(out, func(a, b int) int { return by(reqs[a]) - by(reqs[b]) })
	return out
}

// width is how many ports there are to choose from, at most.
func (r Request) width() int { return r.end() - int(r.First) + 1 }

// end is the last port to choose from.
func (r Request) end() int {
	if r.First == 0 {
		return 1 << 16
	}
	return int(r.Last)
}

func (r Request) allows(port uint16) bool {
	return r.First == 0 || port >= r.First && port <= r.Last
}

func releaseAll(h Holder, list []Binding) {
	for _, b := range list {
		h.Release(b)
	}
}

// mostCrossing is how many ports of a run are answered at IPv6 addresses for a container without:
// each costs a socket.
const mostCrossing = 4096

// pairs are the request's bindings with the host's port left open: one, or one for each
// family of the container, and one at the host's IPv6 addresses for a container without, as
// Docker's proxy has it.
func (r Request) pairs(to []netip.Addr, cross bool) (out []Binding, err error) {
	for _, a := range to {
		switch {
		case !r.Host.IsValid():
			out = append(out, r.bind(unspecified(a), a))
		case r.Host.Is4() == a.Is4():
			out = append(out, r.bind(r.Host, a))
		}
	}
	if v4 := slices.IndexFunc(to, netip.Addr.Is4); v4 >= 0 && cross && r.Proto != SCTP && r.More < mostCrossing && !slices.ContainsFunc(to, netip.Addr.Is6) {
		switch {
		case !r.Host.IsValid():
			out = append(out, r.bind(netip.IPv6Unspecified(), to[v4]))
		case r.Host.Is6():
			out = append(out, r.bind(r.Host, to[v4]))
		}
	}
	if len(out) == 0 {
		has := make([]string, len(to))
		for i, a := range to {
			has[i] = a.String()
		}
		return nil, fmt.Errorf("%d/%s cannot be published at %s: the container has no address of that family (it has %s)", r.Port, r.Proto, r.Host, cmp.Or(strings.Join(has, ", "), "none"))
	}
	return out, nil
}

func unspecified(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

func (r Request) bind(host, to netip.Addr) Binding {
	return Binding{Proto: r.Proto, Host: netip.AddrPortFrom(host, 0), To: netip.AddrPortFrom(to, r.Port), More: r.More}
}

func at(want []Binding, port uint16) []Binding {
	out := slices.Clone(want)
	for i := range out {
		out[i].Host = netip.AddrPortFrom(out[i].Host.Addr(), port)
	}
	return out
}

// hold holds the first port that is free for all of want.
func (r Request) hold(want []Binding, open Choice, h Holder) ([]Binding, error) {
	var last error
	tried := 0
	for port := range r.candidates(open) {
		got := at(want, port)
		err := holdAll(h, got)
		if err == nil {
			return got, nil
		}
		if !taken(err) {
			return nil, err
		}
		last, tried = err, tried+1
	}
	if tried == 1 {
		return nil, last
	}
	return nil, fmt.Errorf("%s: none of %d ports is free; the last one: %w", r, tried, last)
}

func holdAll(h Holder, list []Binding) error {
	for i, b := range list {
		if err := h.Hold(b); err != nil {
			releaseAll(h, list[:i])
			return err
		}
	}
	return nil
}

// candidates are the host's ports in the order in which they are tried.
func (r Request) candidates(open Choice) iter.Seq[uint16] {
	first, last, start := r.First, r.Last, r.First
	if first == 0 {
		first, last = open.First, open.Last
		start = first + open.Start%(last-first+1)
	}
	return func(yield func(uint16) bool) {
		for _, port := range open.before[inside{r.Proto, r.Port}] {
			if r.allows(port) && !yield(port) {
				return
			}
		}
		n := int(last) - int(first) + 1
		for i := range n {
			if !yield(first + uint16((int(start-first)+i)%n)) {
				return
			}
		}
	}
}
