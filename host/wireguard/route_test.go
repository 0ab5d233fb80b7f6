package wireguard

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestNoRoute: what the kernel says of a route that is not there, and of routes of a family that it does not have, as IPv6
// with ipv6.disable=1.
func TestNoRoute(t *testing.T) {
	linktest.New(t).Do(func() {
		route := nowhere(netip.MustParsePrefix("fd67:1::/64"))
		if err := netlink.RouteDel(&route); err == nil || !noRoute(err) {
			t.Errorf("a route that is not there: %v", err)
		}
		req := nl.NewNetlinkRequest(unix.RTM_DELROUTE, unix.NLM_F_ACK)
		msg := nl.NewRtDelMsg()
		msg.Family = unix.AF_X25
		req.AddData(msg)
		if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err == nil || !noRoute(err) {
			t.Errorf("a family that is not there: %v", err)
		}
	})
	if noRoute(unix.EPERM) || noRoute(errors.New("other")) {
		t.Error("whatever fails is no route")
	}
}
