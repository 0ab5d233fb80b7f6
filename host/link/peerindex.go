package link

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// PeerIndex is the index that an endpoint's interface has in its sandbox, whatever the container calls it.
func PeerIndex(endpointID string) (int, error) {
	port := PortName(endpointID)
	l, err := netlink.LinkByName(Beside(OuterPrefix, port))
	if err != nil {
		l, err = netlink.LinkByName(port)
	}
	if err != nil {
		return 0, fmt.Errorf("find the interface of endpoint %.12s: %w", endpointID, mapErr(err))
	}
	return l.Attrs().ParentIndex, nil
}
