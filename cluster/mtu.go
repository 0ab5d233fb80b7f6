package cluster

import (
	"net/netip"

	"github.com/grapevine-net/grapevine/encap"
)

// MinMTU is the least that a container's interface gets: what IPv4 hosts must take
// (RFC 791).
const MinMTU = 576

// MinMTU6 is the least MTU of an interface with IPv6 (RFC 8200, 5). The kernel takes an interface's addresses of IPv6 away
// when it gets less, and does not give them back.
const MinMTU6 = 1280

// MTU returns the largest IP packet, in bytes, that containers of all hosts may send to
// each other: what the encapsulation leaves of the narrowest underlay. underlay is that of this
// host, which may have no record yet; 0: not known.
//
// It is one for the whole cluster: a host with a wider underlay could send more to some,
// but whatever it sends to the others, and is not TCP, would vanish on its way.
func (s *Snapshot) MTU(underlay int) int {
	overhead := 0
	for n := range All[Node](s) {
		if n.MTU != 0 && (underlay == 0 || n.MTU < underlay) {
			underlay = n.MTU
		}
		overhead = max(overhead, n.Encapsulation().Overhead(n.Tunnel()))
	}
	if overhead == 0 {
		overhead = encap.VXLAN.Overhead(netip.IPv4Unspecified())
	}
	if underlay == 0 {
		underlay = 1500
	}
	return max(underlay-overhead, MinMTU)
}

// EncryptedMTU is MTU of an encrypted network, whose packets go through WireGuard, and in it by VXLAN over IPv6.
func (s *Snapshot) EncryptedMTU(underlay int) int {
	least := s.MTU(underlay)
	for n := range All[Node](s) {
		inside := n.MTU
		if !n.Encrypts() { // who does counts it in
			inside -= encap.WireGuard.Overhead(n.Address())
		}
		if n.MTU != 0 {
			least = min(least, inside-encap.VXLAN.Overhead(netip.IPv6Unspecified()))
		}
	}
	return max(least, MinMTU)
}

// NetworkMTU returns the MTU of containers' interfaces on a network: that of NarrowMTU, but with IPv6 no less than
// MinMTU6, however narrow an underlay has become since the network was made.
func (s *Snapshot) NetworkMTU(network string, underlay int) int {
	mtu := s.NarrowMTU(network, underlay)
	if mtu < MinMTU6 && s.NetworksOfIPv6()[network] {
		return MinMTU6
	}
	return mtu
}

// NarrowMTU is what a network was created with, but no more than all underlays carry of it in one piece.
func (s *Snapshot) NarrowMTU(network string, underlay int) int {
	mtu := s.MTU(underlay)
	n, ok := Get[Network](s, network)
	if !ok {
		return mtu
	}
	if n.Encrypted() {
		mtu = s.EncryptedMTU(underlay)
	}
	if n.MTU != 0 {
		return min(n.MTU, mtu)
	}
	return mtu
}

// GatewayMTU is that of the gateway of all networks: MTU, with MinMTU6 as NetworkMTU has it.
func (s *Snapshot) GatewayMTU(underlay int) int {
	mtu := s.MTU(underlay)
	if mtu < MinMTU6 && len(s.NetworksOfIPv6()) > 0 {
		return MinMTU6
	}
	return mtu
}

// NetworksOfIPv6 are those that have a subnet of it.
func (s *Snapshot) NetworksOfIPv6() map[string]bool {
	networks := map[string]bool{}
	for n := range All[Subnet](s) {
		if n.Prefix.Addr().Is6() {
			networks[n.Network] = true
		}
	}
	return networks
}
