package reach

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// A Watcher of a real namespace: LANs, routes of other tables and Docker's networks come and
// go, and it hears of each by itself.
func TestWatcher(t *testing.T) {
	ns := linktest.New(t)
	ip := func(lines ...string) {
		t.Helper()
		for _, line := range lines {
			ns.Do(func() {
				if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
					t.Fatalf("ip %s: %v: %s", line, err, out)
				}
			})
		}
	}
	ip("link add eth0 type veth peer name eth0p", "link add gv0 type veth peer name gv0p", "link set eth0p up", "link set gv0p up", "addr add 192.0.2.1/24 dev eth0", "addr add 10.128.0.1/32 dev gv0",
		"link set eth0 up", "link set gv0 up", "route add default via 192.0.2.254", "route add 10.128.0.0/22 dev gv0", "route add 10.128.4.0/22 dev gv0 table 777",
		"rule add priority 32000 lookup 26486", "route add 10.129.0.0/22 dev eth0 table 26486", "route add 10.77.0.0/16 dev eth0 table 555",
		"rule add priority 32001 lookup 26487", "route add unreachable 10.130.0.0/22 table 26487")
	var w *Watcher
	ns.Do(func() {
		var err error
		if w, err = Open("gv0", []int{26486, 26487}, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		w.Close()
	}()
	has := func(want ...string) {
		t.Helper()
		slices.Sort(want)
		var got []string
		for deadline := time.After(10 * time.Second); ; { // far shorter than its regular looks
			changed := w.Watch()
			got = nil
			for _, thing := range w.Things() {
				got = append(got, fmt.Sprint(thing))
			}
			slices.Sort(got)
			if slices.Equal(got, want) {
				return
			}
			select {
			case <-changed:
			case <-deadline:
				t.Fatalf("the host has %q, want %q", got, want)
			}
		}
	}
	has("192.0.2.0/24 on eth0")
	ip("link add lan0 type veth peer name lan0p", "link set lan0p up", "link set lan0 up", "addr add 192.168.7.1/24 dev lan0", "addr add fd77::1/64 dev lan0 nodad")
	has("192.0.2.0/24 on eth0", "192.168.7.0/24 on lan0", "fd77::/64 on lan0")
	w.SetDocker([]Thing{{netip.MustParsePrefix("192.168.7.0/24"), Docker, "plain"}})
	has("192.0.2.0/24 on eth0", "Docker's network plain (192.168.7.0/24)", "fd77::/64 on lan0")
	w.SetDocker(nil)
	ip("route add 10.0.0.0/8 via 192.0.2.254", "route add blackhole 10.66.0.0/16", "route add 0.0.0.0/1 via 192.0.2.254", "-6 route add fd88::/48 via fd77::9")
	has("192.0.2.0/24 on eth0", "192.168.7.0/24 on lan0", "fd77::/64 on lan0",
		"the route 10.0.0.0/8 via 192.0.2.254 (eth0)", "the route 10.66.0.0/16, which drops", "the route fd88::/48 via fd77::9 (lan0)")
	ip("link del lan0", "route del 10.0.0.0/8", "route del blackhole 10.66.0.0/16")
	has("192.0.2.0/24 on eth0")
	ip("rule add fwmark 7 lookup 555") // a table counts as soon as a rule names it
	has("192.0.2.0/24 on eth0", "10.77.0.0/16 on eth0")
	ip("rule del fwmark 7", "addr add 10.5.5.5/32 dev eth0", "addr add 10.6.6.6/24 dev eth0 noprefixroute")
	has("192.0.2.0/24 on eth0", "10.5.5.5/32 on eth0", "10.6.6.6/32 on eth0")

	// Another address of a prefix that it has is heard of too.
	for changed, added := w.Watch(), false; !slices.Contains(w.Own(), netip.MustParseAddr("192.0.2.77")); changed = w.Watch() {
		if !added {
			ip("addr add 192.0.2.77/24 dev eth0")
			added = true
		}
		select {
		case <-changed:
		case <-time.After(10 * time.Second):
			t.Fatal("not told of an address of its own")
		}
	}
	if got := fmt.Sprint(w.Own()); got != "[10.5.5.5 10.6.6.6 192.0.2.1 192.0.2.77]" { // not the cluster's, nor fe80::
		t.Errorf("its own addresses are %s", got)
	}
}
