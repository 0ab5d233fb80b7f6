package link_test

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestVRF: an interface is in the VRF that it was put into, where the kernel knows of such, and a port of a bridge is in none.
func TestVRF(t *testing.T) {
	linktest.New(t).Do(func() {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		named := func(name string) netlink.LinkAttrs {
			a := netlink.NewLinkAttrs()
			a.Name = name
			return a
		}
		eth0 := &netlink.Veth{LinkAttrs: named("eth0"), PeerName: "far"}
		must(netlink.LinkAdd(eth0))
		if got := link.VRF("eth0"); got != "" {
			t.Errorf("one by itself is in %q", got)
		}
		if got := link.VRF("none"); got != "" {
			t.Errorf("one that there is not is in %q", got)
		}
		bridge := &netlink.Bridge{LinkAttrs: named("br0")}
		must(netlink.LinkAdd(bridge))
		must(netlink.LinkSetMaster(eth0, bridge))
		if got := link.VRF("eth0"); got != "" {
			t.Errorf("a port of a bridge is in %q", got)
		}
		vrf := &netlink.Vrf{LinkAttrs: named("mgmt"), Table: 100}
		if err := netlink.LinkAdd(vrf); errors.Is(err, unix.EOPNOTSUPP) {
			t.Log("this kernel has no VRFs: the rest is not shown here")
			return
		} else {
			must(err)
		}
		must(netlink.LinkSetMaster(eth0, vrf))
		if got := link.VRF("eth0"); got != "mgmt" {
			t.Errorf("one in a VRF is in %q", got)
		}
	})
}
