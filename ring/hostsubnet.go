package ring

import "net/netip"

// maxSlotBits caps the slots of a network at 2^24 as OpenShift SDN does.
const maxSlotBits = 24

// slots describes how OpenShift SDN cuts a network into host subnets and in
// which order it hands them out (openshift/sdn
// pkg/network/master/util/subnet_allocator.go).
type slots struct {
	network  netip.Prefix
	hostBits int
	bits     int // of the subnet's number: between the network's and the host's
	rotate   int // IPv4: so many low bits of the subnet's number come last
	skip     bool
}

// slotsOf returns false if a network cannot be cut into host subnets of that size.
func slotsOf(network netip.Prefix, hostBits int) (slots, bool) {
	if !validBlock(network) || hostBits < 1 {
		return slots{}, false
	}
	s := slots{network: network, hostBits: hostBits, bits: network.Addr().BitLen() - network.Bits() - hostBits}
	if s.bits < 0 {
		return slots{}, false
	}
	if network.Addr().Is4() {
		// The subnet's number shares an octet with the host's and reaches into the
		// next higher one: the subnets with zeros in the shared octet come first.
		if hostBits%8 != 0 && (hostBits-1)/8 != (hostBits+s.bits-1)/8 {
			s.rotate = 8 - hostBits%8
		}
	} else {
		// Of IPv6 subnets those with a last word of 0 are left out: it would be
		// compressed away, and the address look unlike those of other subnets.
		s.skip = s.bits >= 16
	}
	return s, true
}

func (s slots) count() uint64 {
	n := uint64(1) << min(s.bits, maxSlotBits)
	if s.skip {
		n -= n >> 16
	}
	return n
}

// subnet returns the number of the subnet in the slot.
func (s slots) subnet(slot uint64) uint64 {
	if s.skip {
		return slot + slot/0xffff + 1
	}
	return (slot<<s.rotate | slot>>(s.bits-s.rotate)) & (1<<s.bits - 1)
}

// slot is the inverse of subnet; false for a subnet that is never handed out.
func (s slots) slot(subnet uint64) (uint64, bool) {
	slot := (subnet>>s.rotate | subnet<<(s.bits-s.rotate)) & (1<<s.bits - 1)
	if s.skip {
		if subnet&0xffff == 0 {
			return 0, false
		}
		slot = subnet - subnet>>16 - 1
	}
	return slot, slot < s.count()
}

// HostSlots returns how many host subnets with hostBits host bits a network has,
// at most 2^24, and 0 if that size is impossible. IPv6 networks of 2^16 subnets
// or more have none whose number ends in sixteen zero bits.
func HostSlots(network netip.Prefix, hostBits int) uint64 {
	s, ok := slotsOf(network, hostBits)
	if !ok {
		return 0
	}
	return s.count()
}

// HostSubnet returns the host subnet in a slot, counted from 0 in the order in
// which OpenShift SDN hands them out: 10.1.0.0/16 with 6 host bits has
// 10.1.0.0/26, 10.1.1.0/26 .. 10.1.255.0/26, then 10.1.0.64/26 and so on. It
// returns the invalid Prefix for a slot that HostSlots does not count.
func HostSubnet(network netip.Prefix, hostBits int, slot uint64) netip.Prefix {
	s, ok := slotsOf(network, hostBits)
	if !ok || slot >= s.count() {
		return netip.Prefix{}
	}
	bitLen := network.Addr().BitLen()
	first := numberOf(network.Addr()).add(number{0, s.subnet(slot)}.shl(hostBits))
	return netip.PrefixFrom(first.addr(bitLen), bitLen-hostBits)
}

// HostSlot returns the slot of a host subnet of the network, the inverse of
// HostSubnet, and false if subnet is not one of them.
func HostSlot(network netip.Prefix, hostBits int, subnet netip.Prefix) (uint64, bool) {
	s, ok := slotsOf(network, hostBits)
	if !ok || !validBlock(subnet) || !contains(network, subnet) || subnet.Bits() != network.Bits()+s.bits {
		return 0, false
	}
	n := numberOf(subnet.Addr()).sub(numberOf(network.Addr())).shr(hostBits)
	if n.hi != 0 {
		return 0, false
	}
	return s.slot(n.lo)
}
