package plane

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// The kernel is asked which source it takes to the other hosts: with another one than the VTEP
// they drop what comes.
func TestWrongSources(t *testing.T) {
	host, lan := linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", host, lan, []string{"192.0.2.1/24", "192.0.2.61/24", "fd09::1/64"}, nil)
	host.Do(func() {
		ip := func(line string) {
			t.Helper()
			if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				t.Fatalf("ip %s: %v: %s", line, err, out)
			}
		}
		addr := netip.MustParseAddr
		hosts := []netip.Addr{addr("192.0.2.2"), addr("192.0.2.3"), addr("198.51.100.4")}
		ip("route add default via 192.0.2.254")
		if got := sourcesOf(append(hosts, addr("fd09::2")), addr("192.0.2.1")); len(got) != 1 || got[0].to != addr("fd09::2") {
			t.Errorf("with the first address as VTEP: %+v", got)
		}
		second := addr("192.0.2.61")
		got := sourcesOf(hosts, second)
		if len(got) != 1 || got[0].from != addr("192.0.2.1") || got[0].more != 2 {
			t.Fatalf("with the second address as VTEP: %+v", got)
		}
		ip(strings.TrimPrefix(got[0].command(second), "ip ")) // what status tells to do
		if got = sourcesOf(hosts, second); len(got) != 1 || got[0].to != hosts[1] {
			t.Errorf("after a route to the first host: %+v", got)
		}
		for _, h := range hosts[1:] {
			ip(strings.TrimPrefix(sourcesOf([]netip.Addr{h}, second)[0].command(second), "ip "))
		}
		if got = sourcesOf(hosts, second); len(got) != 0 {
			t.Errorf("after routes to all: %+v", got)
		}
	})
}
