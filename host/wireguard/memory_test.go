package wireguard

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestMemory: with a hundred peers the process is small, at rest. Beside it the agent has less than 45 MB
// (docs/measurements/performance.md), and the two are to have less than 80.
func TestMemory(t *testing.T) {
	a := newEnd(t, 1)
	if kind, _ := a.ensure(); kind != Userspace {
		t.Skip("the kernel's WireGuard has no process")
	}
	rss := func() (kb int) {
		t.Helper()
		pid, err := listener(a.device.socket())
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(text), "VmRSS:")
		kb, err = strconv.Atoi(strings.Fields(after)[0])
		if err != nil {
			t.Fatal(err)
		}
		return kb
	}
	alone := rss()
	var c Change
	for n := range 100 {
		key := Key{0: 8 * byte(n%30), 1: byte(n), 5: 7, 31: 64}
		c.Set = append(c.Set, Peer{Key: key.Public(), Endpoint: netip.MustParseAddrPort(fmt.Sprintf("192.0.2.%d:7948", n+1)), Inside: netip.MustParsePrefix(fmt.Sprintf("fd67:1::%x/128", n+1))})
	}
	a.Do(func() {
		if err := a.device.Set(Userspace, c); err != nil {
			t.Fatal(err)
		}
		if _, err := a.device.Ensure(context.Background()); err != nil {
			t.Fatal(err)
		}
	})
	with := rss()
	t.Logf("%d kB without peers, %d kB with 100", alone, with)
	if with > 45<<10 {
		t.Errorf("with 100 peers the process has %d kB", with)
	}
}
