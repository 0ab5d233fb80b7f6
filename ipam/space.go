package ipam

import (
	"net/netip"

	"github.com/grapevine-net/grapevine/cluster"
)

// single returns the block of one number.
func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// first and last return the ends of a masked prefix.
func first(p netip.Prefix) netip.Addr { return p.Addr() }

func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < p.Addr().BitLen(); i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// within reports whether all of inner is in outer.
func within(inner, outer netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// clip returns the parts of blocks that are inside p.
func clip(blocks []netip.Prefix, p netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, b := range blocks {
		switch {
		case within(b, p):
			out = append(out, b)
		case within(p, b):
			out = append(out, p)
		}
	}
	return out
}

// next returns the first aligned block of the given prefix length in free, which
// is in address order, that begins after the address after; failing that, the
// first of all. The invalid Addr is before all addresses.
func next(free []netip.Prefix, bits int, after netip.Addr) (netip.Prefix, bool) {
	var wrapped netip.Prefix
	for _, f := range free {
		if f.Bits() > bits || bits > f.Addr().BitLen() {
			continue
		}
		b := netip.PrefixFrom(f.Addr(), bits)
		if !wrapped.IsValid() {
			wrapped = b
		}
		if after.IsValid() && !after.Less(b.Addr()) {
			if last(f).Compare(after) <= 0 {
				continue
			}
			// after is in f: the block behind the one it is in, if f has that one.
			b = netip.PrefixFrom(last(netip.PrefixFrom(after, bits).Masked()).Next(), bits)
			if !b.IsValid() || !f.Contains(b.Addr()) {
				continue
			}
		}
		return b, true
	}
	return wrapped, wrapped.IsValid()
}

// maxOdd bounds how many addresses are passed over, each of which costs a look at all of free.
const maxOdd = 512

// nextAddress is next for an address, which people are to take for one: those that end in .0 or .255 are
// valid, but look like a network's and a broadcast's own, and some devices drop them. They come last.
func nextAddress(free []netip.Prefix, bits int, after netip.Addr) (netip.Prefix, bool) {
	first, ok := next(free, bits, after)
	p := first
	for range maxOdd {
		if !ok || !odd(p.Addr()) {
			return p, ok
		}
		if p, ok = next(free, bits, p.Addr()); p == first {
			break // there are no others
		}
	}
	return first, true
}

func odd(a netip.Addr) bool {
	if !a.Is4() {
		return false
	}
	last := a.As4()[3]
	return last == 0 || last == 255
}

// reserved returns what nobody may get of a subnet: its first address and, in
// IPv4, its last one (RFC 919), the gateway, and the auxiliary addresses.
func reserved(s cluster.Subnet) []netip.Prefix {
	out := []netip.Prefix{single(first(s.Prefix))}
	if s.Prefix.Addr().Is4() {
		out = append(out, single(last(s.Prefix)))
	}
	if s.Gateway.IsValid() {
		out = append(out, single(s.Gateway))
	}
	for _, addr := range s.Aux {
		if addr.IsValid() {
			out = append(out, single(addr))
		}
	}
	return out
}

// defaultGateway is the first address behind the network's own.
func defaultGateway(p netip.Prefix) netip.Addr { return first(p).Next() }
