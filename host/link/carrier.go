package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Trouble says, for people, why nothing can come and go with the address by the interface:
// that is gone, down or without carrier, or has not the address (invalid: none is asked for).
// "": nothing is known to be wrong.
func Trouble(name string, addr netip.Addr) string {
	if name == "" {
		return ""
	}
	l, err := netlink.LinkByName(name)
	switch {
	case errors.Is(mapErr(err), ErrNotFound):
		return fmt.Sprintf("the interface %s is gone", name)
	case err != nil:
		return ""
	case l.Attrs().Flags&net.FlagUp == 0:
		return fmt.Sprintf("the interface %s is down", name)
	case l.Attrs().OperState == netlink.OperDown, l.Attrs().OperState == netlink.OperLowerLayerDown:
		return fmt.Sprintf("the interface %s has no carrier, as without a cable", name)
	case !addr.IsValid():
		return ""
	}
	if _, found, err := withAddr(addr.Unmap().WithZone("")); err == nil && !found {
		return fmt.Sprintf("no interface of this host has the address %s", addr)
	}
	return ""
}
