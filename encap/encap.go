// Package encap is what there is to know of how packets of containers are wrapped on their way to other hosts: how an
// encapsulation is called, what it adds to a packet, by which port it comes. It is pure; who makes devices and flows asks it.
package encap

import (
	"errors"
	"fmt"
	"net/netip"
)

// Kind is a way to wrap packets, in UDP.
type Kind struct {
	// Name is what settings, options, Open vSwitch's type of port and the kernel's kind of device call it, Title what
	// people do.
	Name, Title string
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
	VXLAN = Kind{Name: "vxlan", Title: "VXLAN", Port: 4789, Header: 8, Inner: ethernet, system: "vxlan_sys_%d"}
	// Geneve is RFC 8926, without options.
	Geneve = Kind{Name: "geneve", Title: "Geneve", Port: 6081, Header: 8, Inner: ethernet, system: "genev_sys_%d"}
	// WireGuard carries IP packets: a header of 16 bytes, and a tag of 16.
	WireGuard = Kind{Name: "wireguard", Title: "WireGuard", Port: 7948, Header: 16, Trailer: 16}
)

// Parse reads the name of a way for containers' frames from host to host.
func Parse(name string) (Kind, error) {
	switch name {
	case VXLAN.Name:
		return VXLAN, nil
	case Geneve.Name:
		return Geneve, nil
	case "auto":
		return Kind{}, errors.New("auto, which would wrap nothing where hosts share a segment, will not be there: only the header says of which network the sender's host takes a container to be, and only wrapped packets find the switch where the fast path leaves them to it (docs/use/encapsulation.md); use vxlan or geneve, and GRAPEVINE_FASTPATH=direct for speed")
	case "gre":
		return Kind{}, errors.New("gre is not there yet: it has no ports, by which this host tells what other hosts send from what containers forge; use vxlan or geneve")
	case "stt":
		return Kind{}, errors.New("stt is gone: Open vSwitch deprecated it in 3.5 and removed it in 3.6, and Linux has never had it; use vxlan or geneve")
	}
	return Kind{}, fmt.Errorf("%.60q is no encapsulation: use vxlan or geneve", name)
}

// Of is the kind that a host's record names: one that names none has VXLAN. known is false for one that is not known here,
// for which VXLAN is taken.
func Of(name string) (k Kind, known bool) {
	if name == "" {
		return VXLAN, true
	}
	k, err := Parse(name)
	if err != nil {
		return VXLAN, false
	}
	return k, true
}

// Mark is what a host's record says of a kind; see Of.
func (k Kind) Mark() string {
	if k.Name == VXLAN.Name {
		return ""
	}
	return k.Name
}

// Secured says whether what goes by it can be encrypted: WireGuard's process takes VXLAN apart, and the rules of IPsec were
// tried with that.
func (k Kind) Secured() bool { return k.Mark() == "" }

// Direct says whether programs at the underlay's interface write its headers.
func (k Kind) Direct() bool { return k.Mark() == "" }

// Options says whether its packets may have options, of which hosts send none.
func (k Kind) Options() bool { return k.Name == Geneve.Name }

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
