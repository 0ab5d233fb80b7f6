package watch

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// A host keeps its underlay while that carries packets, wherever its default route goes.
func TestUnderlayStays(t *testing.T) {
	host, lan, vpn := linktest.New(t), linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", host, lan, []string{"192.0.2.1/24"}, nil)
	linktest.Wire(t, "tun0", host, vpn, []string{"10.99.0.5/24"}, nil)
	host.Do(func() {
		ip := func(line string) {
			t.Helper()
			if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				t.Fatalf("ip %s: %v: %s", line, err, out)
			}
		}
		ip("route add default via 192.0.2.254 metric 100")
		was, err := findUnderlay(config.Config{})
		if err != nil || was.Interface != "eth0" {
			t.Fatal(was, err)
		}
		is := func(device string, keep bool) {
			t.Helper()
			now, err := findUnderlay(config.Config{})
			if err != nil || now.Interface != device {
				t.Fatalf("the default route leads to %+v, %v; want %s", now, err, device)
			}
			if got := now == was || stays(config.Config{}, was, now); got != keep {
				t.Errorf("%+v stays beside %+v: %v, want %v", was, now, got, keep)
			}
		}
		ip("route add default via 10.99.0.1 metric 50")
		is("tun0", true) // a VPN
		ip("route del default via 192.0.2.254")
		is("tun0", true) // its router is being started anew
		ip("addr add 192.0.2.9/24 dev eth0")
		is("tun0", true)
		ip("link set eth0 mtu 1400")
		is("tun0", false)
		ip("link set eth0 mtu 1500")
		is("tun0", true)
		lan.Do(func() { ip("link set eth0 down") }) // the cable
		is("tun0", false)
		lan.Do(func() { ip("link set eth0 up") })
		linktest.WaitUp(t, "eth0")
		is("tun0", true)
		ip("addr flush dev eth0")
		ip("addr add 192.0.2.9/24 dev eth0")
		is("tun0", false)
		ip("addr add 192.0.2.1/24 dev tun0") // it is on another interface now
		is("tun0", false)
	})
}
