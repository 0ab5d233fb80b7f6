package ipam

import (
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/grapevine-net/grapevine/cluster"
)

// TestNothingTwice runs random histories of requests, releases, new and deleted
// networks, cuts, lost replies, crashes and late gossip, and looks after each step
// whether anything has been handed out twice.
func TestNothingTwice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, 3)
		defer func() {
			for _, h := range w.hosts {
				_ = h.db.Close()
			}
		}()
		h := func() *host { return w.hosts[rapid.IntRange(0, 2).Draw(rt, "host")] }
		var nets []netip.Prefix
		made := 0
		subnet := func() netip.Prefix {
			if len(nets) == 0 {
				rt.Skip("no network yet")
			}
			return rapid.SampledFrom(nets).Draw(rt, "subnet")
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": func(rt *rapid.T) { w.unique(rt) },
			"network": func(rt *rapid.T) {
				at, hostBits := h(), rapid.SampledFrom([]int{0, 0, 5}).Draw(rt, "host bits")
				family, bits := 4, 24
				if rapid.Bool().Draw(rt, "IPv6") {
					family, bits = 6, 120 // small, so that it runs out
				}
				if p, err := at.Prefix(ctx, family, bits, hostBits); err == nil {
					for _, other := range nets {
						if other.Overlaps(p) {
							rt.Fatalf("%s overlaps the network %s", p, other)
						}
					}
					made++
					at.announce(fmt.Sprintf("n%d", made), p)
					nets = append(nets, p)
				}
			},
			"address": func(*rapid.T) { _, _ = h().Address(ctx, subnet(), anywhere, anyAddr) },
			"exact": func(rt *rapid.T) {
				at, p := h(), subnet()
				b := p.Addr().AsSlice()
				b[len(b)-1] = byte(rapid.IntRange(2, 20).Draw(rt, "number"))
				want, _ := netip.AddrFromSlice(b)
				if got, err := at.Address(ctx, p, anywhere, want); err == nil && got != want {
					rt.Fatalf("asked for %s, got %s", want, got)
				}
			},
			"release": func(rt *rapid.T) {
				at := h()
				if l := at.Leases(); len(l) > 0 {
					must(t, at.Release(rapid.SampledFrom(l).Draw(rt, "lease").Addr))
				}
			},
			"delete": func(*rapid.T) {
				p := subnet()
				for _, at := range w.hosts {
					for _, l := range at.Leases() {
						if p.Contains(l.Addr) {
							return // the driver keeps networks that are in use
						}
					}
				}
				w.heal()
				w.spread()
				w.hosts[0].deleteSubnet(p)
				for i, q := range nets {
					if q == p {
						nets = append(nets[:i], nets[i+1:]...)
						break
					}
				}
			},
			"vnid":   func(*rapid.T) { _, _ = h().VNID(ctx) },
			"exactv": func(rt *rapid.T) { _ = h().VNIDExact(ctx, uint32(rapid.IntRange(1, 9).Draw(rt, "vnid")), "x") },
			"home":   func(*rapid.T) { must(t, h().homing.sendHome()) },
			"stock":  func(*rapid.T) { h().stockUp(ctx) },
			"gossip": func(*rapid.T) { w.gossip(h(), h()) },
			"cut": func(*rapid.T) {
				a, b := h(), h()
				w.cut[[2]cluster.NodeID{a.id, b.id}], w.cut[[2]cluster.NodeID{b.id, a.id}] = true, true
			},
			"heal":    func(*rapid.T) { w.heal() },
			"lose":    func(rt *rapid.T) { w.loseReplies = rapid.Bool().Draw(rt, "lose replies") },
			"restart": func(*rapid.T) { h().restart() },
		})
		w.heal()
		w.spread()
		w.unique(rt)
	})
}

func (w *world) heal() {
	clear(w.cut)
	w.loseReplies = false
}
