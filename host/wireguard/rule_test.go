package wireguard

import (
	"context"
	"strings"
	"testing"
)

// TestFirst: another program's rule before the main table, as Tailscale's for an exit node, leads nothing of what is for
// the hosts inside elsewhere; with the device gone that leads nowhere; and nothing of ours stays.
func TestFirst(t *testing.T) {
	e := newEnd(t, 1)
	e.ensure()
	e.run("ip", "link", "add", "tailscale0", "type", "veth", "peer", "other")
	e.run("ip", "link", "set", "tailscale0", "up")
	e.run("ip", "-6", "addr", "add", "fd64::1/64", "dev", "tailscale0", "nodad")
	e.run("ip", "-6", "route", "add", "default", "dev", "tailscale0", "table", "52")
	e.run("ip", "-6", "rule", "add", "priority", "5270", "lookup", "52")
	ways := func() string { return e.run("sh", "-c", "ip -6 route get fd67:1::9 2>&1; true") }
	if got := ways(); !strings.Contains(got, "dev gvwg ") {
		t.Errorf("with another's rule: %s", got)
	}
	e.ensure()
	if n := strings.Count(e.run("ip", "-6", "rule"), "fd67:1::/64"); n != 2 {
		t.Errorf("made twice there are %d rules, not those of both kinds", n)
	}
	e.run("ip", "link", "del", "gvwg")
	if got := ways(); strings.Contains(got, "tailscale0") {
		t.Errorf("without the device: %s", got)
	}
	e.Do(func() {
		if _, err := e.device.Ensure(context.Background()); err != nil {
			t.Fatal(err)
		}
		gone, err := e.device.Remove()
		if err != nil || !strings.Contains(strings.Join(gone, "; "), "routing rule of fd67:1::/64") {
			t.Errorf("removed: %q, %v", gone, err)
		}
		if _, err := e.device.Remove(); err != nil {
			t.Errorf("once more: %v", err)
		}
	})
	if got := e.run("ip", "-6", "rule"); strings.Contains(got, "fd67:1::") {
		t.Errorf("left: %s", got)
	}
}

// TestNowhereWithoutRoutes: where somebody has taken the device and the routes away, as a program that takes all routes for its own does,
// the default route is no way to the hosts inside. An older agent's rule, which led there, is replaced.
func TestNowhereWithoutRoutes(t *testing.T) {
	e := newEnd(t, 1)
	e.run("ip", "link", "add", "eth0", "type", "veth", "peer", "other")
	e.run("ip", "link", "set", "eth0", "up")
	e.run("ip", "-6", "addr", "add", "fd64::1/64", "dev", "eth0", "nodad")
	e.run("ip", "-6", "route", "add", "default", "dev", "eth0")
	e.run("ip", "-6", "rule", "add", "priority", "1", "to", "fd67:1::/64", "lookup", "main")
	e.ensure()
	ways := func() string { return e.run("sh", "-c", "ip -6 route get fd67:1::9 2>&1; true") }
	if got := ways(); !strings.Contains(got, "dev gvwg ") {
		t.Errorf("with all there is: %s", got)
	}
	if got := e.run("ip", "-6", "rule"); strings.Count(got, "fd67:1::/64") != 2 {
		t.Errorf("an older agent's rule is there yet:\n%s", got)
	}
	e.run("ip", "link", "del", "gvwg")
	e.run("ip", "-6", "route", "flush", "fd67:1::/64")
	e.run("sh", "-c", "ip -6 route del unreachable fd67:1::/64 || true")
	if got := ways(); strings.Contains(got, "eth0") {
		t.Errorf("without the device and its routes: %s", got)
	}
	e.ensure()
	if got := ways(); !strings.Contains(got, "dev gvwg ") {
		t.Errorf("made anew: %s", got)
	}
}
