package overlay

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/gateway"
)

// TestPassMayHelp: what goes while something else is put back is not left to the look at
// everything, nor is what cannot be put back tried without end.
func TestPassMayHelp(t *testing.T) {
	for _, c := range []struct {
		known, left []string
		want        bool
	}{
		{nil, nil, false},
		{[]string{"a route"}, nil, false},
		{nil, []string{"the interface"}, true},
		{[]string{"the interface"}, []string{"the interface"}, false},
		{[]string{"a route"}, []string{"the interface"}, true},
		{[]string{"the interface"}, []string{"the interface", "a route"}, true},
	} {
		if got := passMayHelp(c.known, c.left); got != c.want {
			t.Errorf("known %q, left %q: %v", c.known, c.left, got)
		}
	}
}

// TestGuard: what others take away from the host is put back at once.
func TestGuard(t *testing.T) {
	h := newHost(t)
	ovstest.Eventually(t, 20*time.Second, func() error {
		if out, err := exec.Command("ip", "route", "show", "table", "26486").CombinedOutput(); err != nil || !strings.Contains(string(out), "10.128.0.0/22") {
			return fmt.Errorf("routes: %w: %s", err, out)
		}
		return errors.Join(h.Problems()...)
	})
	gv0, err := link.Get(gateway.Port)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, take, look, want string }{
		{"the rule", "ip rule del priority 32000", "ip rule show priority 32000", "26486"},
		{"the routes", "ip route flush table 26486", "ip route show table 26486", "10.128.0.0/22"},
		{"a route", "ip route del 10.129.0.0/22 table 26486", "ip route show table 26486", "10.129.0.0/22"},
		{"an address", "ip addr del 10.128.0.1/32 dev gv0", "ip addr show dev gv0", "10.128.0.1/32"},
		{"its MAC address", "ip link set gv0 address 02:00:00:00:00:77", "ip link show gv0", gv0.MAC.String()},
		{"its MTU", "ip link set gv0 mtu 1280", "ip link show gv0", fmt.Sprintf("mtu %d ", gv0.MTU)},
		{"that it is up", "ip link set gv0 down", "ip link show gv0", ",UP"},
		{"its routes with it", "ip link set gv0 down", "ip route show table 26486", "10.128.0.0/22"},
		{"the interface", "ip link del gv0", "ip route show table 26486", "10.128.0.0/22"},
		{"the switch of the host", "sysctl -qw net.ipv4.ip_forward=0", "sysctl -n net.ipv4.ip_forward", "1"},
		{"its own switch", "sysctl -qw net.ipv4.conf.gv0.forwarding=0", "sysctl -n net.ipv4.conf.gv0.forwarding", "1"},
		{"of which the kernel does not tell", "sysctl -qw net.ipv4.conf.gv0.route_localnet=0", "sysctl -n net.ipv4.conf.gv0.route_localnet", "1"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			// What the one before has taken may be coming back still.
			ovstest.Eventually(t, time.Minute, func() error {
				if out, err := exec.Command("sh", "-c", c.take).CombinedOutput(); err != nil {
					return fmt.Errorf("%s: %w: %s", c.take, err, out)
				}
				return nil
			})
			began := time.Now()
			// Far below the half minute after which everything is looked at.
			ovstest.Eventually(t, 15*time.Second, func() error {
				out, err := exec.Command("sh", "-c", c.look).CombinedOutput()
				if err == nil && !strings.Contains(string(out), c.want) {
					err = fmt.Errorf("%s: %s", c.look, out)
				}
				return err
			})
			t.Logf("back after %v", time.Since(began))
		})
	}
	ovstest.Eventually(t, 15*time.Second, func() error {
		_ = exec.Command("ip", "rule", "del", "priority", "32000").Run() // if it is back
		for _, err := range h.Problems() {
			if strings.Contains(err.Error(), "again and again") {
				return nil
			}
		}
		return fmt.Errorf("that somebody fights with us is not said: %v", h.Problems())
	})
}

// TestRepairs: one who sets several things does not fight; who does the same again and again does.
func TestRepairs(t *testing.T) {
	var r repairs
	now := time.Now()
	is := func(want string) {
		t.Helper()
		if err := r.problem(now); (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, what := range []string{"the rule is gone", "the route is gone", "gv0 is down", "net.ipv4.ip_forward is 0 instead of 1"} {
		r.note([]string{what}, now)
	}
	is("")
	r.note([]string{"the rule is gone", "gv0 is down"}, now.Add(10*time.Second))
	is("")
	now = now.Add(20 * time.Second)
	r.note([]string{"gv0 is down"}, now)
	is("3 times within the last minute: gv0 is down")
	now = now.Add(time.Hour)
	is("")
	if r.note(nil, now); len(r.at) != 0 {
		t.Errorf("it remembers %v", r.at)
	}
}
