package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/overlay/gateway"
)

// mayAsk says why a container does not get to a server by itself. The resolver asks as the
// host does, which reaches every container and is not forwarded.
func (a *Agent) mayAsk(container, server netip.Addr) error {
	routes, err := netlink.RouteGetWithOptions(server.AsSlice(), &netlink.RouteGetOptions{Iif: gateway.Port, SrcAddr: container.AsSlice()})
	if err != nil || len(routes) == 0 {
		return fmt.Errorf("no packet of the container's is forwarded there: %w", err)
	}
	switch routes[0].Type {
	case unix.RTN_LOCAL:
		return nil // the host's own, or published
	case unix.RTN_UNICAST:
	default:
		return errors.New("that is no address of a machine")
	}
	l, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return err
	}
	if name := l.Attrs().Name; name == gateway.Port || a.vswitch.guard.apartFrom(name) {
		return fmt.Errorf("it is on another network, behind %s", name)
	}
	return nil
}

// apartFrom says whether a device is a bridge of Docker's.
func (g *guard) apartFrom(device string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Contains(g.apart, device)
}
