package guard

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/host/filter"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestBridges: which bridges are Docker's, and which of internal networks, the next agent
// knows before Docker has told it.
func TestBridges(t *testing.T) {
	networks := []docker.Network{
		{ID: "0123456789abcdef", Driver: "bridge"},
		{ID: "1123456789abcdef", Driver: "bridge", Internal: true},
		{ID: "2123456789abcdef", Driver: "bridge", Options: map[string]string{"com.docker.network.bridge.name": "mine"}},
		{ID: "3123456789abcdef", Driver: "overlay"},
	}
	want := []bridge{{"br-0123456789ab", false}, {"br-1123456789ab", true}, {"mine", false}}
	got := bridgesOf(networks)
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	run := filepath.Join(t.TempDir(), "run")
	g := &Guard{notes: notesIn(run)}
	if all := g.remembered(); all != nil {
		t.Errorf("before: %v", all)
	}
	if err := g.remember(got); err != nil {
		t.Fatal(err)
	}
	// Somebody empties the run directory: the next agent reads it all the same.
	if err := os.RemoveAll(run); err != nil {
		t.Fatal(err)
	}
	if err := g.notes.keep(); err != nil {
		t.Fatal(err)
	}
	if all := (&Guard{notes: notesIn(run)}).remembered(); !slices.Equal(all, want) {
		t.Errorf("%v, want %v", all, want)
	}
	if got, err := os.ReadDir(run); err != nil || len(got) != 1 {
		t.Errorf("the run directory has %v, %v: notes that were never made", got, err)
	}
	if err := g.memory.set(""); err != nil {
		t.Fatal(err)
	}
	if err := g.memory.keep(); err != nil {
		t.Fatal(err)
	}
	if all := (&Guard{notes: notesIn(run)}).remembered(); all != nil {
		t.Errorf("after it was taken back: %v", all)
	}
}

// TestIsDockers: while the rules are being set, which may wait for iptables' lock, nobody waits to be told which bridges
// are Docker's.
func TestIsDockers(t *testing.T) {
	linktest.New(t).Do(func() {
		g := New(Config{Run: t.TempDir()})
		g.knows([]bridge{{name: "mine"}})
		g.mu.Lock()
		defer g.mu.Unlock()
		for name, want := range map[string]bool{"mine": true, "docker0": true, "br-0123456789ab": true, "other": false} {
			if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
				t.Fatal(err)
			}
			l, err := netlink.LinkByName(name)
			if err != nil {
				t.Fatal(err)
			}
			if got := g.IsDockers(l.Attrs().Index); got != want {
				t.Errorf("%s is Docker's: %v", name, got)
			}
		}
		if g.IsDockers(999999) {
			t.Error("an interface that is not there is Docker's")
		}
	})
}

// known is a Source and a Reach: one cluster that does not change, of whose subnets all are reached.
type known struct{ snap *cluster.Snapshot }

func (k known) Snapshot() *cluster.Snapshot { return k.snap }
func (known) Watch() <-chan struct{}        { return nil }
func (known) Ours(s *cluster.Snapshot) (containers, ranges []netip.Prefix) {
	return s.Subnets(), []netip.Prefix{netip.MustParsePrefix("10.128.0.0/14")}
}

// TestKnownBeforeTold: the rules of an agent that begins know containers, their gateways and the ports that all hosts answer, before the overlay
// has told which they are. A container that called a published port then would be taken for somebody from outside, and keep its own
// address; and one could leave by an exposed port, and have the datagrams of its clients.
func TestKnownBeforeTold(t *testing.T) {
	linktest.New(t).Do(func() {
		subnet, gateway := netip.MustParsePrefix("10.7.0.0/24"), netip.MustParseAddr("10.7.0.1")
		state := cluster.New("1111111111111111")
		for _, b := range []cluster.Body{cluster.Network{Name: "blue", VNID: 7}, cluster.Subnet{Prefix: subnet, Network: "blue", Gateway: gateway}} {
			if _, _, err := state.Put(b); err != nil {
				t.Fatal(err)
			}
		}
		here := known{state.Snapshot()}
		g := New(Config{
			Self: "1111111111111111", Own: []uint16{4789}, Run: t.TempDir(), Source: here, Reach: here,
			Open: func(*cluster.Snapshot) []netip.Prefix { return nil }, Exposed: func(*cluster.Snapshot) []uint16 { return []uint16{53} },
		})
		cfg, err := g.config()
		if !slices.Equal(cfg.Exposed, []uint16{53}) {
			t.Errorf("before it is told: exposed ports %v", cfg.Exposed)
		}
		if err != nil || !slices.Contains(cfg.Inside, subnet) || len(cfg.Inside) != 2 || !slices.Equal(cfg.Gateways, []netip.Addr{gateway}) {
			t.Errorf("before it is told: inside %v, gateways %v, %v", cfg.Inside, cfg.Gateways, err)
		}
		g.Expose(nil, nil, nil)
		if cfg, err := g.config(); err != nil || len(cfg.Inside)+len(cfg.Gateways)+len(cfg.Exposed) != 0 {
			t.Errorf("told that there are none: inside %v, gateways %v, exposed %v, %v", cfg.Inside, cfg.Gateways, cfg.Exposed, err)
		}
	})
}

// TestShutFailureIsSaid: where routes cannot be set that lead nowhere, rules alone keep what is to be encrypted, and status says so until they can.
func TestShutFailureIsSaid(t *testing.T) {
	linktest.New(t).Do(func() {
		g := &Guard{log: slog.New(slog.DiscardHandler)}
		shut := func() []api.Problem {
			g.shut(filter.Config{Encrypted: link.WireGuard, Cluster: []netip.Prefix{netip.MustParsePrefix("10.128.4.0/22")}})
			return g.Problems()
		}
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var can [2]unix.CapUserData
		if err := unix.Capget(&header, &can[0]); err != nil {
			t.Fatal(err)
		}
		cannot := can
		cannot[0].Effective &^= 1 << unix.CAP_NET_ADMIN
		if err := unix.Capset(&header, &cannot[0]); err != nil { // of this thread
			t.Fatal(err)
		}
		got := shut()
		if err := unix.Capset(&header, &can[0]); err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || got[0].Code != api.GuardFails || !strings.Contains(got[0].What, "rules of nftables alone keep") {
			t.Errorf("without the right to set routes: %+v", got)
		}
		if got := shut(); len(got) > 0 {
			t.Errorf("with it: %+v", got)
		}
	})
}
