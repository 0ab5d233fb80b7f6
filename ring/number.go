package ring

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
)

// number is an address as an unsigned 128-bit integer; an IPv4 address is below
// 2^32. The sizes of blocks are numbers as well, saturating at 2^128-1.
type number struct{ hi, lo uint64 }

var maxNumber = number{math.MaxUint64, math.MaxUint64}

func numberOf(a netip.Addr) number {
	if a.Is4() {
		b := a.As4()
		return number{0, uint64(binary.BigEndian.Uint32(b[:]))}
	}
	b := a.As16()
	return number{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// addr returns the address of the given length in bits, 32 or 128.
func (n number) addr(bitLen int) netip.Addr {
	if bitLen == 32 {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(n.lo))
		return netip.AddrFrom4(b)
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], n.hi)
	binary.BigEndian.PutUint64(b[8:], n.lo)
	return netip.AddrFrom16(b)
}

func (n number) less(m number) bool {
	return n.hi < m.hi || n.hi == m.hi && n.lo < m.lo
}

func (n number) xor(m number) number { return number{n.hi ^ m.hi, n.lo ^ m.lo} }

// add wraps around at 2^128.
func (n number) add(m number) number {
	lo, carry := bits.Add64(n.lo, m.lo, 0)
	hi, _ := bits.Add64(n.hi, m.hi, carry)
	return number{hi, lo}
}

// plus saturates at 2^128-1.
func (n number) plus(m number) number {
	if sum := n.add(m); !sum.less(n) {
		return sum
	}
	return maxNumber
}

func (n number) sub(m number) number {
	lo, borrow := bits.Sub64(n.lo, m.lo, 0)
	hi, _ := bits.Sub64(n.hi, m.hi, borrow)
	return number{hi, lo}
}

func (n number) inc() number { return n.add(number{0, 1}) }
func (n number) dec() number { return n.sub(number{0, 1}) }

func (n number) leadingZeros() int {
	if n.hi != 0 {
		return bits.LeadingZeros64(n.hi)
	}
	return 64 + bits.LeadingZeros64(n.lo)
}

func (n number) trailingZeros() int {
	if n.lo != 0 {
		return bits.TrailingZeros64(n.lo)
	}
	return 64 + bits.TrailingZeros64(n.hi)
}

// shr shifts right by s bits, 0 to 128.
func (n number) shr(s int) number {
	if s >= 64 {
		return number{0, n.hi >> (s - 64)}
	}
	return number{n.hi >> s, n.lo>>s | n.hi<<(64-s)}
}

// shl shifts left by s bits, 0 to 128.
func (n number) shl(s int) number {
	if s >= 64 {
		return number{n.lo << (s - 64), 0}
	}
	return number{n.hi<<s | n.lo>>(64-s), n.lo << s}
}

// power returns 2^e, or 2^128-1 for e of 128.
func power(e int) number {
	switch {
	case e >= 128:
		return maxNumber
	case e >= 64:
		return number{1 << (e - 64), 0}
	}
	return number{0, 1 << e}
}

// saturated returns n or, if it does not fit, the highest uint64.
func (n number) saturated() uint64 {
	if n.hi != 0 {
		return math.MaxUint64
	}
	return n.lo
}
