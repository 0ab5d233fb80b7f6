package link

import (
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Way is the name of the interface by which this host sends to an address, "" where it has no route there, or one that leads nowhere.
func Way(to netip.Addr) string {
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil || len(routes) == 0 {
		return ""
	}
	return Name(routes[0].LinkIndex)
}
