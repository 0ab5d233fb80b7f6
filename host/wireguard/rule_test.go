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
	if n := strings.Count(e.run("ip", "-6", "rule"), "fd67:1::/64"); n != 1 {
		t.Errorf("made twice there are %d rules", n)
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
