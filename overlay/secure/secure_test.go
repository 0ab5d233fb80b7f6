package secure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/host/wireguard"
	"github.com/grapevine-net/grapevine/overlay/fastpath"
)

// The test's own program is the process of WireGuard, where the kernel has none.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == wireguard.Verb {
		if err := wireguard.Serve(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type still struct{ snap *cluster.Snapshot }

func (s still) Snapshot() *cluster.Snapshot { return s.snap }
func (s still) Watch() <-chan struct{}      { return nil }

// TestPortTaken: who has WireGuard's port is named, with the port; when it is free, all is well.
func TestPortTaken(t *testing.T) {
	linktest.New(t).Do(func() {
		k := New(Config{
			Self: one, Key: wireguard.Key{1}, Port: 7948, Run: t.TempDir(), Log: slog.New(slog.DiscardHandler),
			Underlay: link.Underlay{Interface: "lo", Addr: netip.MustParseAddr("192.0.2.1"), MTU: 1500},
		})
		k.Follow(still{snapshot(t)})
		defer func() { _, _ = Purge(k.cfg.Run) }()
		taker, err := net.ListenPacket("udp", ":7948")
		if err != nil {
			t.Fatal(err)
		}
		err = k.Ensure(t.Context())
		taker.Close()
		if want := fmt.Sprintf("(process %d)", os.Getpid()); err == nil || !strings.Contains(err.Error(), "UDP port 7948 is taken, by ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want the port and %s", err, want)
		}
		if err := k.Ensure(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestBehind: an agent that may know less than the one before takes no peer from the device, whose session would end with it, until it has caught up.
func TestBehind(t *testing.T) {
	linktest.New(t).Do(func() {
		run := t.TempDir()
		agent := func(snap *cluster.Snapshot, caughtUp <-chan struct{}) *Keeper {
			k := New(Config{
				Self: one, Key: wireguard.Key{1}, Port: 7948, Run: run, Log: slog.New(slog.DiscardHandler),
				Underlay: link.Underlay{Interface: "lo", Addr: netip.MustParseAddr("192.0.2.1"), MTU: 1500},
			})
			k.Follow(still{snap})
			k.GoThrough(Through{
				Path: fastpath.Inside{Path: fastpath.New(fastpath.Config{})}, Ranges: func(*cluster.Snapshot) []Range { return nil }, CaughtUp: caughtUp,
			})
			return k
		}
		peers := func(k *Keeper) int {
			t.Helper()
			if err := k.Ensure(t.Context()); err != nil {
				t.Fatal(err)
			}
			kind, err := k.device.Ensure(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			state, err := k.device.State(kind)
			if err != nil {
				t.Fatal(err)
			}
			return len(state.Peers)
		}
		defer func() { _, _ = Purge(run) }()
		self, other := host(one, 1, "192.0.2.1:7948"), host(two, 2, "192.0.2.2:7948")
		if n := peers(agent(snapshot(t, self, other), nil)); n != 1 {
			t.Fatalf("%d peers", n)
		}
		caughtUp := make(chan struct{})
		k := agent(snapshot(t, self), caughtUp)
		if n := peers(k); n != 1 {
			t.Errorf("%d peers before it has caught up", n)
		}
		close(caughtUp)
		if n := peers(k); n != 0 {
			t.Errorf("%d peers of a host that nobody knows", n)
		}
	})
}

// TestOpen: a host that cannot encrypt has no Keeper and says why, and begins all the same, unless all is to be encrypted.
func TestOpen(t *testing.T) {
	cannot, unread := errors.New("the underlay is too small"), errors.New("the key cannot be read")
	none := func() ([32]byte, error) { return [32]byte{}, unread }
	one := func() ([32]byte, error) { return [32]byte{1}, nil }
	for _, c := range []struct {
		what     string
		all      bool
		cannot   error
		load     func() ([32]byte, error)
		why, err error
	}{
		{"all is well", false, nil, one, nil, nil},
		{"it cannot", false, cannot, one, cannot, nil},
		{"no key", false, nil, none, unread, nil},
		{"no key, and all is to be encrypted", true, nil, none, nil, unread},
	} {
		k, why, err := Open(Config{All: c.all}, c.cannot, c.load)
		if why != c.why || err != c.err || (k != nil) != (why == nil && err == nil) { //nolint:errorlint // the very same
			t.Errorf("%s: %v, %v, a Keeper: %v", c.what, why, err, k != nil)
		}
		if k != nil && k.cfg.Key != [32]byte{1} {
			t.Errorf("%s: its key is %v", c.what, k.cfg.Key)
		}
	}
}
