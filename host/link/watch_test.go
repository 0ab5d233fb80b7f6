package link_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// run runs a command line in the present namespace.
func run(t *testing.T, line string) {
	t.Helper()
	args := strings.Fields(line)
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
}

// TestWatch makes each kind of change and waits until the kernel tells of it.
func TestWatch(t *testing.T) {
	host, wire := linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", host, wire, []string{"10.9.0.1/24", "fd09::1/64"}, nil)
	host.Do(func() {
		w, err := link.OpenWatch(link.LinkChange, link.AddrChange, link.RouteChange, link.RuleChange, link.FilterChange, link.SwitchChange)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		heard := make(chan link.Change, 10000)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx, func(c link.Change) { heard <- c }) }()
		if c := <-heard; c.Kind != link.AnyChange {
			t.Errorf("first it tells of %+v", c)
		}
		eth0, err := link.Get("eth0")
		if err != nil {
			t.Fatal(err)
		}
		sysctl := func(file, value string) {
			for _, v := range []string{"0", value} { // one of the two is a change
				if err := os.WriteFile("/proc/sys/net/"+file, []byte(v), 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		is := func(kind link.Kind, gone bool) func(link.Change) bool {
			return func(c link.Change) bool { return c.Kind == kind && c.Gone == gone }
		}
		for _, step := range []struct {
			do   string
			want func(link.Change) bool
		}{
			{"ip rule add priority 32000 table 26486", func(c link.Change) bool {
				return c.Kind == link.RuleChange && !c.Gone && c.Priority == 32000 && c.Table == 26486 && !c.V6
			}},
			{"ip -6 rule add priority 32000 table 26486", func(c link.Change) bool { return c.Kind == link.RuleChange && c.V6 }},
			{"ip rule del priority 32000", func(c link.Change) bool { return c.Kind == link.RuleChange && c.Gone && c.Priority == 32000 }},
			{"ip route add 10.7.0.0/16 dev eth0 table 26486", func(c link.Change) bool {
				return c.Kind == link.RouteChange && !c.Gone && c.Table == 26486 && c.Dst.String() == "10.7.0.0/16" && c.Index == eth0.Index
			}},
			{"ip -6 route add fd07::/16 dev eth0 table 26486", func(c link.Change) bool {
				return c.Kind == link.RouteChange && c.V6 && c.Table == 26486 && c.Dst.String() == "fd07::/16"
			}},
			{"ip route flush table 26486", func(c link.Change) bool { return c.Kind == link.RouteChange && c.Gone && c.Table == 26486 }},
			{"ip addr add 10.9.0.7/24 dev eth0", func(c link.Change) bool {
				return c.Kind == link.AddrChange && !c.Gone && c.Dst.String() == "10.9.0.7/24" && c.Index == eth0.Index
			}},
			{"ip addr del 10.9.0.7/24 dev eth0", is(link.AddrChange, true)},
			{"tc qdisc add dev eth0 clsact", func(c link.Change) bool { return c.Kind == link.FilterChange && !c.Gone && c.Index == eth0.Index }},
			{"tc qdisc del dev eth0 clsact", is(link.FilterChange, true)},
			{"sysctl net.ipv4.conf.eth0.forwarding=1", func(c link.Change) bool { return c.Kind == link.SwitchChange && c.Index == eth0.Index && !c.V6 }},
			{"sysctl net.ipv4.ip_forward=1", func(c link.Change) bool { return c.Kind == link.SwitchChange && c.Index < 0 }},
			{"sysctl net.ipv6.conf.eth0.forwarding=1", func(c link.Change) bool { return c.Kind == link.SwitchChange && c.Index == eth0.Index && c.V6 }},
			{"sysctl net.ipv4.conf.eth0.rp_filter=2", func(c link.Change) bool { return c.Kind == link.SwitchChange && c.Index == eth0.Index }},
			{"ip link set eth0 down", func(c link.Change) bool { return c.Kind == link.LinkChange && c.Name == "eth0" && !c.Up && !c.Gone }},
			{"ip link set eth0 address 02:00:00:00:00:77", func(c link.Change) bool { return c.Kind == link.LinkChange && c.Name == "eth0" }},
			{"ip link add v0 type vxlan id 1 dstport 4789 dev eth0", func(c link.Change) bool { return c.Kind == link.LinkChange && c.Name == "v0" && !c.Gone }},
			{"ip link del v0", func(c link.Change) bool { return c.Kind == link.LinkChange && c.Name == "v0" && c.Gone }},
		} {
			for len(heard) > 0 {
				<-heard
			}
			if file, value, isSysctl := strings.Cut(strings.TrimPrefix(step.do, "sysctl net."), "="); isSysctl {
				sysctl(strings.ReplaceAll(file, ".", "/"), value)
			} else {
				run(t, step.do)
			}
			for end := time.After(10 * time.Second); ; {
				select {
				case c := <-heard:
					if !step.want(c) {
						continue
					}
				case <-end:
					t.Errorf("%s: nothing was told", step.do)
				}
				break
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestWatchTooMuch: what the kernel had no room for is told as AnyChange.
func TestWatchTooMuch(t *testing.T) {
	ns := linktest.New(t)
	ns.Do(func() {
		w, err := link.OpenWatch(link.RuleChange)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		told, blocked := make(chan link.Change, 1<<20), make(chan struct{})
		go func() {
			_ = w.Run(ctx, func(c link.Change) {
				told <- c
				<-blocked
			})
		}()
		if c := <-told; c.Kind != link.AnyChange {
			t.Fatalf("first: %+v", c)
		}
		var lines strings.Builder
		for range 5000 {
			lines.WriteString("rule add priority 32000 table 26486\nrule del priority 32000\n")
		}
		cmd := exec.Command("ip", "-batch", "-")
		cmd.Stdin = strings.NewReader(lines.String())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("ip -batch: %v: %s", err, out)
		}
		close(blocked)
		for end := time.After(10 * time.Second); ; {
			select {
			case c := <-told:
				if c.Kind == link.AnyChange {
					return
				}
			case <-end:
				t.Fatal("that something was lost is not told")
			}
		}
	})
}
