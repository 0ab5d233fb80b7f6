package watch

import (
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/replica/replicatest"
)

// TestIPv6Off: it is told where containers of this host lose their way out by it, and nowhere else.
func TestIPv6Off(t *testing.T) {
	host, lan := linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", host, lan, []string{"192.0.2.1/24"}, nil)
	const self, other = cluster.NodeID("00000000000000aa"), cluster.NodeID("00000000000000bb")
	of := func(on cluster.NodeID, internal bool, addr string) *cluster.Snapshot {
		return replicatest.New(t, on, cluster.Network{Name: "blue", VNID: 1, Internal: internal},
			cluster.Endpoint{ID: strings.Repeat("a", 64), Network: "blue", Host: on, MAC: "02:00:00:00:00:01", Addrs: []netip.Addr{netip.MustParseAddr(addr)}}).Snapshot()
	}
	six := of(self, false, "fd00:1::2")
	host.Do(func() {
		run := func(line string) {
			t.Helper()
			if out, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", line, err, out)
			}
		}
		told := func(what string, snap *cluster.Snapshot, want bool) {
			t.Helper()
			if got := IPv6Off("eth0", self, snap); (len(got) == 1 && got[0].Code == api.FamilyOff) != want {
				t.Errorf("%s: %v", what, got)
			}
		}
		told("IPv6 is on", six, false)
		run("echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6")
		told("it is off", six, true)
		told("the container is another host's", of(other, false, "fd00:1::2"), false)
		told("the network is internal", of(self, true, "fd00:1::2"), false)
		told("it is of IPv4", of(self, false, "10.128.0.2"), false)
		run("ip link add vpn type veth peer name far; echo 0 > /proc/sys/net/ipv6/conf/vpn/disable_ipv6; ip link set far up; ip link set vpn up; ip -6 route add default dev vpn")
		told("there is another way out", six, false)
	})
}

// TestIPv6Narrow: it names who is too narrow, how much is missing, and for which networks, and is silent of all others.
func TestIPv6Narrow(t *testing.T) {
	const self, other = cluster.NodeID("00000000000000aa"), cluster.NodeID("00000000000000bb")
	world := func(theirs int, bodies ...cluster.Body) *cluster.Snapshot {
		r := replicatest.New(t, self, append(bodies, cluster.Node{ID: self, Name: "host1", MTU: 1500, VTEP: netip.MustParseAddr("192.0.2.1")})...)
		replicatest.Hear(t, r, other, cluster.Node{ID: other, Name: "host2", MTU: theirs, VTEP: netip.MustParseAddr("192.0.2.2")})
		return r.Snapshot()
	}
	blue := []cluster.Body{cluster.Network{Name: "blue", VNID: 1}, cluster.Subnet{Network: "blue", Prefix: netip.MustParsePrefix("10.1.0.0/24")}}
	six := append(slices.Clone(blue), cluster.Subnet{Network: "blue", Prefix: netip.MustParsePrefix("fd00:1::/64")})
	for _, c := range []struct {
		snap *cluster.Snapshot
		own  int
		want string
	}{
		{world(1280, blue...), 1500, ""},
		{world(1330, six...), 1500, ""},
		{world(1280, six...), 1500, "host2 carries 1280 bytes, which leaves containers 1230, .* network blue"},
		{world(1400, six...), 1300, "underlay of this host carries 1300 bytes, which leaves containers 1250"},
	} {
		got := IPv6Narrow(c.own, c.snap)
		if (len(got) == 0) != (c.want == "") || len(got) > 0 && (got[0].Code != api.FamilyNarrow || !regexp.MustCompile(c.want).MatchString(got[0].What)) {
			t.Errorf("got %v, want %q", got, c.want)
		}
	}
}
