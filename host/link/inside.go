package link

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// Inside is the container's end of an endpoint's veth, in the namespace of file sandbox.
func Inside(endpointID, sandbox string) (Link, error) {
	port := PortName(endpointID)
	host, err := netlink.LinkByName(Beside(OuterPrefix, port))
	if errors.Is(mapErr(err), ErrNotFound) {
		host, err = netlink.LinkByName(port)
	}
	if err != nil {
		return Link{}, fmt.Errorf("look for the container's end of %s: %w", port, mapErr(err))
	}
	_, peer, done, err := peerIn(host.Attrs(), sandbox)
	if err != nil {
		return Link{}, fmt.Errorf("look for the container's end of %s: %w", host.Attrs().Name, err)
	}
	done()
	return fromNetlink(peer), nil
}
