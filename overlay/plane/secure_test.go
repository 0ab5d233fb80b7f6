package plane

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/host/nat"
	"github.com/grapevine-net/grapevine/overlay/guard"
	"github.com/grapevine-net/grapevine/overlay/secure"
)

// world is a cluster of one host, and what leads there.
type world struct{ snap *cluster.Snapshot }

func (w world) Snapshot() *cluster.Snapshot                              { return w.snap }
func (world) Watch() <-chan struct{}                                     { return nil }
func (world) Ours(*cluster.Snapshot) (containers, ranges []netip.Prefix) { return nil, nil }
func (world) opened(*cluster.Snapshot) []netip.Prefix                    { return nil }

// TestOpenFromTheFirstLook: an agent that begins anew leaves the tunnel its port for what comes to encrypted networks, as the
// former agent made it. The rules that this needs are there before it says so.
func TestOpenFromTheFirstLook(t *testing.T) {
	const self = "0123456789abcdef"
	s := cluster.New(self)
	w := world{s.Snapshot()}
	linktest.New(t).Do(func() {
		log := slog.New(slog.DiscardHandler)
		begun := func() seal {
			k := secure.New(secure.Config{Self: self, Port: 7948, Run: t.TempDir(), Log: log, Underlay: link.Underlay{Interface: "lo", Addr: netip.MustParseAddr("192.0.2.1"), MTU: 1500}})
			k.Follow(w)
			g := guard.New(guard.Config{Self: self, Own: []uint16{4789, 7947}, Networks: true, Run: t.TempDir(), Source: w, Reach: w, NAT: nat.New(), Open: w.opened, Log: log})
			t.Cleanup(g.Close)
			return seal{k, g, log}
		}
		if begun().opened() {
			t.Error("open without an encrypted network")
		}
		if _, _, err := s.Put(cluster.Network{Name: "blue", VNID: 5, Options: map[string]string{cluster.EncryptedOption: ""}}); err != nil {
			t.Fatal(err)
		}
		w.snap = s.Snapshot()
		now := begun()
		if now.open() {
			t.Error("open without rules")
		}
		if !now.opened() || !now.open() || !now.guard.Strict() {
			t.Errorf("not open at the first look; strict: %v", now.guard.Strict())
		}
	})
}
