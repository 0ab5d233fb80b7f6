// Package encap is what there is to know of how packets of containers are wrapped on their way to other hosts: how an
// encapsulation is called, what it adds to a packet, by which port it comes. It is pure; who makes devices and flows asks it.
package encap

import (
	"fmt"
	"net/netip"
)

// Kind is a way to wrap packets, in UDP.
type Kind struct {
	// Name is what settings, options, Open vSwitch's type of port and the kernel's kind of device call it.
	Name string
	// Port is the UDP port that it has unless a setting says another.
	Port uint16
	// Header is what it puts behind the headers of the outer IP and UDP, in bytes; Trailer what it adds at the end.
	Header, Trailer int
	// Inner is the header of the frame that it carries, 0 if it carries IP packets.
	Inner int

	system string // how Open vSwitch calls the kernel's interface
}

// The lengths of headers that several have.
const (
	ethernet = 14
	ip4, ip6 = 20, 40
	udp      = 8
)

// The kinds.
var (
	// VXLAN is RFC 7348.
	VXLAN = Kind{Name: "vxlan", Port: 4789, Header: 8, Inner: ethernet, system: "vxlan_sys_%d"}
	// WireGuard carries IP packets: a header of 16 bytes, and a tag of 16.
	WireGuard = Kind{Name: "wireguard", Port: 7948, Header: 16, Trailer: 16}
)

// IPsec is more than ESP in transport mode adds to a packet, in UDP and with any algorithm of these days, in bytes
// (RFC 4303, RFC 3948).
const IPsec = 80

// Overhead is what it adds to an IP packet between hosts at such addresses, in bytes: the least one is that of IPv4.
func (k Kind) Overhead(host netip.Addr) int {
	return k.Behind(host.Is6() && !host.Is4In6()) + k.Inner + k.Trailer
}

// Behind is how far what it carries, frame or packet, is behind the beginning of the outer IP header.
func (k Kind) Behind(v6 bool) int {
	if v6 {
		return ip6 + udp + k.Header
	}
	return ip4 + udp + k.Header
}

// System is the interface that Open vSwitch makes in the kernel for all of its ports of a kind and a UDP port.
func (k Kind) System(port uint16) string { return fmt.Sprintf(k.system, port) }
