package ring

import "net/netip"

// VNIDs is the block of the ring that stands for the VNIDs (VXLAN network
// identifiers, 24 bits, RFC 7348): 0.0.0.0/8.
var VNIDs = netip.PrefixFrom(netip.AddrFrom4([4]byte{}), 8)

// VNIDAddr returns the address that stands for VNID v in the ring, and the
// invalid Addr if v is 2^24 or more.
func VNIDAddr(v uint32) netip.Addr {
	if v >= 1<<24 {
		return netip.Addr{}
	}
	return number{0, uint64(v)}.addr(32)
}

// AddrVNID returns the VNID that a stands for, and false if a is outside VNIDs.
func AddrVNID(a netip.Addr) (uint32, bool) {
	if !VNIDs.Contains(a) {
		return 0, false
	}
	return uint32(numberOf(a).lo), true
}
