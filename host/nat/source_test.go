package nat

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestSources: a subnet leaves from its address where the host has that, before any that is masqueraded, and in step with
// addresses that come and go; in both families.
func TestSources(t *testing.T) {
	ns := linktest.New(t)
	ns.Do(func() {
		n := New()
		n.glance = 10 * time.Millisecond
		cfg := Config{Interface: "gv0", CIDRs: []netip.Prefix{v4, v6}, Sources: []Source{
			{netip.MustParsePrefix("10.128.4.0/22"), netip.MustParseAddr("192.0.2.25")},
			{netip.MustParsePrefix("fd00:128:0:1::/64"), netip.MustParseAddr("2001:db8::25")},
		}}
		if err := n.Set(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go ns.Do(func() { ended <- n.Run(ctx, slog.New(slog.NewTextHandler(io.Discard, nil))) })
		for range 2 {
			if got := n.Absent(); !slices.Equal(got, []netip.Addr{cfg.Sources[0].Address, cfg.Sources[1].Address}) {
				t.Errorf("absent are %v", got)
			}
			for _, cmd := range []string{"iptables", "ip6tables"} {
				if got := lines(t, cmd, "nat", Postrouting); strings.Contains(got, "SNAT") {
					t.Errorf("without the address %s has\n%s", cmd, got)
				}
			}
			run(t, "ip", "addr", "add", "192.0.2.25/32", "dev", "lo")
			run(t, "ip", "addr", "add", "2001:db8::25/128", "dev", "lo")
			eventually(t, func() bool { return len(n.Absent()) == 0 })
			for cmd, want := range map[string]string{
				"iptables":  "-A " + Postrouting + " -s 10.128.4.0/22 ! -o gv0 -j SNAT --to-source 192.0.2.25\n-A " + Postrouting + " -s 10.128.0.0/14 ! -o gv0 -j MASQUERADE\n",
				"ip6tables": "-A " + Postrouting + " -s fd00:128:0:1::/64 ! -o gv0 -j SNAT --to-source 2001:db8::25\n-A " + Postrouting + " -s fd00:128::/48 ! -o gv0 -j MASQUERADE\n",
			} {
				eventually(t, func() bool { return strings.Contains(lines(t, cmd, "nat", Postrouting), want) })
			}
			run(t, "ip", "addr", "del", "192.0.2.25/32", "dev", "lo")
			run(t, "ip", "addr", "del", "2001:db8::25/128", "dev", "lo")
			eventually(t, func() bool { return len(n.Absent()) == 2 })
			eventually(t, func() bool {
				return !strings.Contains(lines(t, "iptables", "nat", Postrouting)+lines(t, "ip6tables", "nat", Postrouting), "SNAT")
			})
		}
		stop()
		<-ended
	})
}

func eventually(t *testing.T, f func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within 5 s")
		}
	}
}

// TestAbsentDoesNotWait: who asks what is absent has an answer while another method waits for iptables' lock.
func TestAbsentDoesNotWait(t *testing.T) {
	n := New()
	source := netip.MustParseAddr("192.0.2.25")
	n.mu.Lock() // what waits holds it
	defer n.mu.Unlock()
	n.cfg.Sources, n.set = []Source{{netip.MustParsePrefix("10.128.4.0/22"), source}}, true
	if _, err := n.lookHere(); err != nil {
		t.Fatal(err)
	}
	told := make(chan []netip.Addr, 1)
	go func() { told <- n.Absent() }()
	select {
	case got := <-told:
		if !slices.Equal(got, []netip.Addr{source}) {
			t.Errorf("absent are %v", got)
		}
	case <-time.After(time.Minute):
		t.Error("what is absent is not told while iptables' lock is waited for")
	}
}
