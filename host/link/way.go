package link

import (
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Way is the name of the interface by which this host sends to an address, "" where it has no route there, or one that leads nowhere.
func Way(to netip.Addr) string {
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil || len(routes) == 0 {
		return ""
	}
	return Name(routes[0].LinkIndex)
}

// UDPWay is Way of UDP packets to a port, of which a routing rule may speak. A kernel before Linux 4.17 has no such rules, and
// overlooks what it does not know.
func UDPWay(to netip.Addr, port uint16) string {
	to = to.Unmap()
	bits := to.BitLen()
	message := &nl.RtMsg{}
	message.Family, message.Dst_len = unix.AF_INET, uint8(bits)
	if to.Is6() {
		message.Family = unix.AF_INET6
	}
	req := nl.NewNetlinkRequest(unix.RTM_GETROUTE, 0)
	req.AddData(message)
	req.AddData(nl.NewRtAttr(unix.RTA_DST, to.AsSlice()))
	req.AddData(nl.NewRtAttr(unix.RTA_IP_PROTO, []byte{unix.IPPROTO_UDP}))
	req.AddData(nl.NewRtAttr(unix.RTA_DPORT, []byte{byte(port >> 8), byte(port)}))
	answers, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE)
	if err != nil || len(answers) == 0 || len(answers[0]) < unix.SizeofRtMsg {
		return ""
	}
	attributes, err := nl.ParseRouteAttr(answers[0][unix.SizeofRtMsg:])
	if err != nil {
		return ""
	}
	for _, a := range attributes {
		if a.Attr.Type == unix.RTA_OIF && len(a.Value) == 4 {
			return Name(int(nl.NativeEndian().Uint32(a.Value)))
		}
	}
	return ""
}
