package policy

import (
	"maps"
	"net/netip"
	"slices"
)

// known are the labels of networks by name.
type known map[string]labels

func knownNetworks(networks []Network) known {
	k := known{}
	for _, n := range networks {
		k[n.Name] = labels{n.Labels, true, n.Name}
	}
	return k
}

// of are a network's labels.
func (k known) of(name string) labels {
	if l, ok := k[name]; ok {
		return l
	}
	return labels{network: name}
}

// networkMatches says whether a set selects from a network.
func (s *Set) networkMatches(name string, networks known) truth {
	switch {
	case s.Network == "":
		return s.Networks.matches(networks.of(name))
	case s.Network == name:
		return yes
	}
	return no
}

// matches says whether a set selects an endpoint.
func (s *Set) matches(e *Endpoint, networks known) truth {
	result := s.networkMatches(e.Network, networks)
	if result == no {
		return no
	}
	return min(result, s.Endpoints.matches(labels{have: e.Labels, all: e.Known}))
}

// resolved is a port of a rule as a range at a destination: what it is for certain, and what it may
// be. A name that nothing here has matches nothing.
func (p *Port) resolved(to *Endpoint) (r PortRange, t truth) {
	if p.Name == "" {
		return PortRange{p.Proto, p.From, p.To}, yes
	}
	if to == nil {
		return r, no
	}
	named, ok := to.Ports[p.Name]
	switch {
	case ok && (p.Proto == 0 || p.Proto == named.Proto):
		return PortRange{named.Proto, named.Port, named.Port}, yes
	case !ok && !to.Known:
		return PortRange{p.Proto, 0, 65535}, maybe
	}
	return r, no
}

func (r PortRange) contains(proto uint8, port uint16) bool {
	return (r.Proto == 0 || r.Proto == proto) && r.From <= port && port <= r.To
}

// prefixes are a block as prefixes that do not overlap.
func (b Block) prefixes() []netip.Prefix {
	left := []netip.Prefix{b.Prefix.Masked()}
	for _, e := range b.Except {
		var rest []netip.Prefix
		for _, p := range left {
			rest = append(rest, without(p, e.Masked())...)
		}
		left = rest
	}
	return left
}

// without is p less what is in q.
func without(p, q netip.Prefix) []netip.Prefix {
	if !p.Overlaps(q) {
		return []netip.Prefix{p}
	}
	var rest []netip.Prefix
	for p.Bits() < q.Bits() {
		low, high := halves(p)
		if low.Contains(q.Addr()) {
			p, rest = low, append(rest, high)
		} else {
			p, rest = high, append(rest, low)
		}
	}
	return rest // what is left of p is all of q, or within it
}

func halves(p netip.Prefix) (low, high netip.Prefix) {
	bits := p.Bits() + 1
	b := p.Addr().AsSlice()
	b[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	addr, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(p.Addr(), bits), netip.PrefixFrom(addr, bits)
}

func comparePrefix(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}

// sortedKeys are the keys of a map in their order.
func sortedKeys[V any](m map[string]V) []string {
	if len(m) == 0 {
		return nil
	}
	keys := slices.AppendSeq(make([]string, 0, len(m)), maps.Keys(m))
	slices.Sort(keys)
	return keys
}
