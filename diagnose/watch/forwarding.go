package watch

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link"
)

// ForwardingOff says that packets which come in at the underlay's interface are not passed
// on: the administrator's switch, which the agent leaves alone, and which stops published
// ports and the answers to what containers send out (IPv4; IPv6 has no such switch of one
// interface).
func ForwardingOff(dev string) []api.Problem {
	text, err := os.ReadFile("/proc/sys/net/ipv4/conf/" + dev + "/forwarding")
	if err != nil || string(bytes.TrimSpace(text)) != "0" {
		return nil
	}
	return []api.Problem{{
		Code: api.ForwardingOff,
		What: fmt.Sprintf("this host passes on nothing that comes in at %s (net.ipv4.conf.%s.forwarding is 0): ports that containers publish are not reached there, and containers get no answers from outside", dev, dev),
		Do:   fmt.Sprintf("sysctl -w net.ipv4.conf.%s.forwarding=1, and see what of /etc/sysctl.d turns it off", dev),
	}}
}

// InVRF says that the underlay's interface was put into a VRF. It has its routes there; the kernel leads VXLAN, and the agent's
// own packets, by the main table.
func InVRF(dev string) []api.Problem {
	vrf := link.VRF(dev)
	if vrf == "" {
		return nil
	}
	return []api.Problem{{
		Code: api.UnderlayVRF,
		What: fmt.Sprintf("%s, by which this host reaches the others, is in the VRF %s: what containers and the agent send is led by the main routing table, and not by that of the VRF", dev, vrf),
		Do:   fmt.Sprintf("ip link set %s nomaster, and its routes again; or set GRAPEVINE_ADVERTISE to an address of an interface that is in none", dev),
	}}
}

// IPv6Off says that IPv6 was turned off at the underlay's interface, by which containers of this host on networks with
// IPv6 would reach the outside: a host's administrator turns it off for all of a host, or a VPN does, and means the host.
func IPv6Off(dev string, self cluster.NodeID, snap *cluster.Snapshot) []api.Problem {
	text, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + dev + "/disable_ipv6")
	if err != nil || string(bytes.TrimSpace(text)) != "1" || wayOut6() || !leads6(self, snap) {
		return nil
	}
	return []api.Problem{{
		Code: api.FamilyOff,
		What: fmt.Sprintf("IPv6 is off at %s (net.ipv6.conf.%s.disable_ipv6 is 1), and this host has no other way out by IPv6: its containers on networks that have it reach each other by it, and nothing outside", dev, dev),
		Do:   fmt.Sprintf("sysctl -w net.ipv6.conf.%s.disable_ipv6=0, see what of /etc/sysctl.d turns it off, and have %s set up anew, which has lost its addresses; or let these networks have no IPv6", dev, dev),
	}}
}

// IPv6Narrow says that networks have IPv6 and an underlay carries less of their containers than IPv6 needs. They keep their
// addresses, for which the kernel wants an MTU that their packets then have, and so these go in fragments, or not at all.
// The underlay is this host's, in bytes.
func IPv6Narrow(underlay int, snap *cluster.Snapshot) []api.Problem {
	var names []string
	least := cluster.MinMTU6
	for name := range snap.NetworksOfIPv6() {
		if mtu := snap.NarrowMTU(name, underlay); mtu < cluster.MinMTU6 {
			names, least = append(names, name), min(least, mtu)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	of := "network " + names[0]
	if len(names) > 1 {
		of = "networks " + words.Listed(names)
	}
	narrowest, whose := underlay, "this host"
	for n := range cluster.All[cluster.Node](snap) {
		if n.MTU != 0 && (n.MTU < narrowest || narrowest == 0) {
			narrowest, whose = n.MTU, "host "+n.Name
		}
	}
	return []api.Problem{{
		Code: api.FamilyNarrow,
		What: fmt.Sprintf("the underlay of %s carries %d bytes, which leaves containers %d, and IPv6 needs %d: what is larger and goes to it or comes from it, of %s, goes in fragments, or is lost where something on the way drops these",
			whose, narrowest, least, cluster.MinMTU6, of),
		Do: fmt.Sprintf("let the underlay of %s carry %d bytes more (its interface's MTU, and GRAPEVINE_MTU if that is set), or make the networks anew without IPv6", whose, cluster.MinMTU6-least),
	}}
}

// leads6 reports whether a container of this host has an IPv6 address on a network that leads out.
func leads6(self cluster.NodeID, snap *cluster.Snapshot) bool {
	for e := range cluster.All[cluster.Endpoint](snap) {
		if e.Host != self || !slices.ContainsFunc(e.Addrs, netip.Addr.Is6) {
			continue
		}
		if n, there := cluster.Get[cluster.Network](snap, e.Network); there && !n.Internal {
			return true
		}
	}
	return false
}

// wayOut6 reports whether this host has a default route of IPv6. The kernel has one of its own at lo that refuses all.
func wayOut6() bool {
	text, err := os.ReadFile("/proc/thread-self/net/ipv6_route")
	if err != nil {
		return true // nobody knows
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 10 && f[1] == "00" && strings.Trim(f[0], "0") == "" && f[9] != "lo" {
			return true
		}
	}
	return false
}
