package link

import "strings"

// Names of grapevine's interfaces, whichever room makes them.
const (
	Ours         = "gv"       // begins the names of all but the last three kinds
	Bridge       = "gvbr0"    // in whichever Open vSwitch is used
	Gateway      = "gv0"      // the host's own port of the bridge
	Tunnel       = "gvtun"    // the port of the bridge to other hosts
	TunnelInside = "gvtun6"   // the same for what comes inside what encrypts, with the kernel's datapath
	TunnelPeer   = "gvtunx"   // its other end with the userspace datapath, where packets from the underlay go in
	VXLAN        = "gvvxlan"  // the VXLAN device of the userspace datapath
	Geneve       = "gvgeneve" // the Geneve device of it
	GRE          = "gvgre"    // the GRE device of it
	WireGuard    = "gvwg"     // the device that encrypts what goes to other hosts
	WireGuard2   = "gvwg2"    // the one that does while keys change

	Clients = "gvwgc" // the device by which clients come, in a sandbox of its own

	// Prefixes of an endpoint's interfaces; the digits after are the same.
	PortPrefix  = Ours // the switch's port
	OuterPrefix = "gh" // the host's end of the container's veth, if that is no port of the switch
	InnerPrefix = "gx" // the other end of the switch's port then
	PeerPrefix  = "gc" // the container's end, on its way into the container
)

// digits is how many of an endpoint's ID are in the names of its interfaces.
const digits = 12

// PortName is the switch's port of an endpoint: PortPrefix and the first 12 digits of the endpoint's ID.
func PortName(endpointID string) string {
	return PortPrefix + endpointID[:min(digits, len(endpointID))]
}

// Beside is the interface that goes with an endpoint's port.
func Beside(prefix, port string) string { return prefix + strings.TrimPrefix(port, PortPrefix) }

// PortOf is the port of the endpoint that an interface in the host belongs to; "": it is no endpoint's.
func PortOf(name string) string {
	for _, prefix := range []string{PortPrefix, OuterPrefix, InnerPrefix} {
		id, ours := strings.CutPrefix(name, prefix)
		if ours && len(id) == digits && strings.Trim(id, "0123456789abcdef") == "" {
			return PortPrefix + id
		}
	}
	return ""
}
