package ipam

import (
	"net/netip"
	"sync"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/ring"
)

// What is outside the cluster's ranges has no owner that could be off just when somebody
// names it (commons.go). Who begins a subnet there needs most of five books: copies of
// those numbers, in blocks of IPv6 that IANA has given to nobody. The books are numbers of
// the ring, so that each line of each of them has one owner at any time, and no two hosts
// can have three of a line's five. Nothing else has to be proven.
//
// A line is written as a prefix of 2000::/3, its page: IPv6 as it is, fc00::/7 as 3e00::/7,
// IPv4 as 6to4 does (RFC 3056). Subnets that share a page by that are kept apart needlessly,
// which nobody meets: 3e00::/7 is unused, 6to4 is over.
const (
	books    = 5
	majority = books/2 + 1
)

var (
	pages     = netip.MustParsePrefix("2000::/3")
	ulas      = netip.MustParsePrefix("fc00::/7")
	ulaPages  = netip.MustParsePrefix("3e00::/7")
	v4Pages   = netip.MustParsePrefix("2002::/16")
	bookHeads = [books]byte{0x40, 0x60, 0x80, 0xa0, 0xc0} // the first octet of each book, of which three bits count
)

// outside is what the commons may hold: what a --subnet can be.
var outside = sync.OnceValue(func() []netip.Prefix {
	return append(ring.Subtract([]netip.Prefix{everything[0]}, []netip.Prefix{ring.VNIDs, netip.MustParsePrefix("224.0.0.0/3")}), pages, ulas)
})

// pageOf is the page of a block of outside.
func pageOf(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4() {
		b, v4 := v4Pages.Addr().As16(), p.Addr().As4()
		copy(b[2:], v4[:])
		return netip.PrefixFrom(netip.AddrFrom16(b), v4Pages.Bits()+p.Bits())
	}
	b := p.Addr().As16()
	if within(p, ulas) {
		b[0] = b[0]&1 | 0x3e
	}
	return netip.PrefixFrom(netip.AddrFrom16(b), p.Bits())
}

// realOf are the blocks of outside that share a page.
func realOf(page netip.Prefix) []netip.Prefix {
	out := []netip.Prefix{page}
	for _, part := range clip([]netip.Prefix{page}, v4Pages) {
		b := part.Addr().As16()
		out = append(out, netip.PrefixFrom(netip.AddrFrom4([4]byte(b[2:6])), min(part.Bits()-v4Pages.Bits(), 32)))
	}
	for _, part := range clip([]netip.Prefix{page}, ulaPages) {
		b := part.Addr().As16()
		b[0] = b[0]&1 | 0xfc
		out = append(out, netip.PrefixFrom(netip.AddrFrom16(b), part.Bits()))
	}
	return out
}

// inBook is a page in one of the books.
func inBook(book int, page netip.Prefix) netip.Prefix {
	b := page.Addr().As16()
	b[0] = b[0]&0x1f | bookHeads[book]
	return netip.PrefixFrom(netip.AddrFrom16(b), page.Bits())
}

// bookOf is the inverse of inBook: false if a block is not one of a book.
func bookOf(p netip.Prefix) (book int, page netip.Prefix, ok bool) {
	if !p.IsValid() || p.Addr().Is4() || p.Bits() < pages.Bits() {
		return 0, page, false
	}
	b := p.Addr().As16()
	for i, head := range bookHeads {
		if b[0]&0xe0 == head {
			b[0] = b[0]&0x1f | 0x20
			return i, netip.PrefixFrom(netip.AddrFrom16(b), p.Bits()), true
		}
	}
	return 0, page, false
}

// keeper is the host that keeps a book, but for the lines that are lent: who owns the number
// 2000:: in it, which is never lent.
func keeper(r *ring.Ring, book int) cluster.NodeID {
	c, _ := r.Owner(inBook(book, pages).Addr())
	return c.Owner
}
