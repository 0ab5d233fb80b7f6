// Package encap is what there is to know of how packets of containers are wrapped on their way to other hosts: how an
// encapsulation is called, what it adds to a packet, by which port or protocol it comes. It is pure; who makes devices and flows asks it.
package encap

import (
	"errors"
	"fmt"
	"net/netip"
)

// Kind is a way to wrap packets, in UDP or, if it has no Port, in an IP protocol of its own.
type Kind struct {
	// Name is what settings, options, Open vSwitch's type of port and the kernel's kind of device call it (for GRE see
	// PortType and Device), Title what people do.
	Name, Title string
	// Port is the UDP port that it has unless a setting says another, 0 if it has no ports.
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
	// GRE is RFC 2784 with the key of RFC 2890, in which the number of the network is.
	GRE = Kind{Name: "gre", Title: "GRE", Header: 8, Inner: ethernet, system: "gre_sys"}
	// WireGuard carries IP packets: a header of 16 bytes, and a tag of 16.
	WireGuard = Kind{Name: "wireguard", Title: "WireGuard", Port: 7948, Header: 16, Trailer: 16}
)

// ProtocolGRE is GRE's IP protocol.
const ProtocolGRE = 47

// Parse reads the name of a way for containers' frames from host to host.
func Parse(name string) (Kind, error) {
	switch name {
	case VXLAN.Name:
		return VXLAN, nil
	case Geneve.Name:
		return Geneve, nil
	case GRE.Name:
		return GRE, nil
	case "auto":
		return Kind{}, errors.New("auto is of a host and not of a network: GRAPEVINE_ENCAP=auto (docs/use/encapsulation.md)")
	case "stt":
		return Kind{}, errors.New("stt is gone: Open vSwitch deprecated it in 3.5 and removed it in 3.6, and Linux has never had it; use vxlan, geneve or gre")
	}
	return Kind{}, fmt.Errorf("%.60q is no encapsulation: use vxlan, geneve or gre", name)
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
	n := ip4 + k.Header
	if v6 {
		n = ip6 + k.Header
	}
	if k.Ports() {
		n += udp
	}
	return n
}

// Ports says whether it is in UDP, so that a port tells it from all else.
func (k Kind) Ports() bool { return k.Port != 0 }

// Summed says whether its packets have a checksum between addresses of IPv6, as RFC 8200, 8.1, wants it of UDP. GRE need not have
// one, and Linux 6.1 leaves zero in its place where each packet names its own receiver, and drops it there.
func (k Kind) Summed() bool { return k.Name != GRE.Name }

// System is the interface that Open vSwitch makes in the kernel for all of its ports of a kind and a UDP port, between hosts
// at addresses of IPv4 or IPv6.
func (k Kind) System(port uint16, v6 bool) string {
	switch {
	case k.Ports():
		return fmt.Sprintf(k.system, port)
	case v6:
		return "ip6" + k.system
	}
	return k.system
}

// PortType is Open vSwitch's type of port, between hosts at addresses of IPv4 or IPv6: of GRE there is one for each.
func (k Kind) PortType(v6 bool) string {
	if k.Name == GRE.Name && v6 {
		return "ip6gre"
	}
	return k.Name
}

// Device is the kernel's kind of device.
func (k Kind) Device(v6 bool) string {
	switch {
	case k.Name != GRE.Name:
		return k.Name
	case v6:
		return "ip6gretap"
	}
	return "gretap"
}

// Module is the kernel's module that has Device.
func (k Kind) Module(v6 bool) string {
	switch {
	case k.Name != GRE.Name:
		return k.Name
	case v6:
		return "ip6_gre"
	}
	return "ip_gre"
}

// By is how firewalls are to be told of what comes by it, at a UDP port: for people.
func (k Kind) By(port uint16) string {
	if k.Ports() {
		return fmt.Sprintf("UDP port %d", port)
	}
	return fmt.Sprintf("IP protocol %d (%s)", ProtocolGRE, k.Title)
}
