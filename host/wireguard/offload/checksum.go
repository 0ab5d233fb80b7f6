package offload

import (
	"encoding/binary"
	"math/bits"
)

// sum adds the 16-bit words of b, the last one filled with zero, to a sum (RFC 1071). Such sums may be added to each
// other with plus.
func sum(b []byte, to uint64) uint64 {
	var carry uint64
	for len(b) >= 32 {
		to, carry = bits.Add64(to, binary.BigEndian.Uint64(b), carry)
		to, carry = bits.Add64(to, binary.BigEndian.Uint64(b[8:]), carry)
		to, carry = bits.Add64(to, binary.BigEndian.Uint64(b[16:]), carry)
		to, carry = bits.Add64(to, binary.BigEndian.Uint64(b[24:]), carry)
		b = b[32:]
	}
	for len(b) >= 8 {
		to, carry = bits.Add64(to, binary.BigEndian.Uint64(b), carry)
		b = b[8:]
	}
	to = plus(to, carry)
	if len(b) > 0 {
		var last [8]byte
		copy(last[:], b)
		to = plus(to, binary.BigEndian.Uint64(last[:]))
	}
	return to
}

func plus(a, b uint64) uint64 {
	s, carry := bits.Add64(a, b, 0)
	return s + carry
}

// fold makes 16 bits of a sum.
func fold(s uint64) uint16 {
	s = s>>32 + s&0xffffffff
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// udpChecksum is the checksum of UDP with that sum: 0 would mean none.
func udpChecksum(s uint64) uint16 {
	if c := ^fold(s); c != 0 {
		return c
	}
	return 0xffff
}
