package ipam

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/grapevine-net/grapevine/cluster"
)

// TestForgottenWhileAlive runs random histories in which hosts are forgotten that are
// cut off and go on: they hand out what they had, and give it to each other and to whom
// they reach. Among the others nothing is handed out twice, before and after they meet.
func TestForgottenWhileAlive(t *testing.T) {
	const hosts = 4
	forgotten, unasked := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, hosts)
		defer func() {
			for _, h := range w.hosts {
				_ = h.db.Close()
			}
		}()
		p := get(w.hosts[0].Prefix(ctx, 4, 28, 0))(t) // so small that all ask each other
		w.hosts[0].announce("blue", p)
		w.spread()
		h := func() *host { return w.hosts[rapid.IntRange(0, hosts-1).Draw(rt, "host")] }
		link := func(a, b *host, cut bool) {
			w.cut[[2]cluster.NodeID{a.id, b.id}], w.cut[[2]cluster.NodeID{b.id, a.id}] = cut, cut
		}
		isolate := func(at *host) {
			for _, o := range w.hosts {
				link(at, o, true)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"":        func(rt *rapid.T) { w.unique(rt) },
			"address": func(*rapid.T) { _, _ = h().Address(ctx, p, anywhere, anyAddr) },
			"exact": func(rt *rapid.T) {
				b := p.Addr().As4()
				b[3] += byte(rapid.IntRange(2, 14).Draw(rt, "number"))
				_, _ = h().Address(ctx, p, anywhere, netip.AddrFrom4(b))
			},
			"release": func(rt *rapid.T) {
				at := h()
				if l := at.Leases(); len(l) > 0 {
					must(t, at.Release(rapid.SampledFrom(l).Draw(rt, "lease").Addr))
				}
			},
			"vnid":    func(*rapid.T) { _, _ = h().VNID(ctx) },
			"stock":   func(*rapid.T) { h().stockUp(ctx) },
			"gossip":  func(*rapid.T) { w.gossip(h(), h()) },
			"link":    func(rt *rapid.T) { link(h(), h(), rapid.Bool().Draw(rt, "cut")) },
			"isolate": func(*rapid.T) { isolate(h()) },
			"lose":    func(rt *rapid.T) { w.loseReplies = rapid.Bool().Draw(rt, "lose replies") },
			"restart": func(*rapid.T) {
				if at := h(); !at.gone { // a forgotten one is refused as soon as it has heard of it
					at.restart()
				}
			},
			// A person takes those for dead that a host does not reach, on the side of the
			// most hosts: on one side only.
			"forget": func(*rapid.T) {
				at := h()
				var dead []cluster.NodeID
				var lost []*host
				members := 0
				for _, o := range w.hosts {
					if o.gone {
						continue
					}
					members++
					if o != at && !w.reaches(at, o) {
						dead, lost = append(dead, o.id), append(lost, o)
					}
				}
				if at.gone || len(dead) == 0 || 2*len(dead) >= members {
					return
				}
				if at.Takeover(ctx, dead...) == nil {
					forgotten += len(dead)
					for _, o := range lost {
						o.gone = true
					}
				}
			},
			// Each host would forget all that it does not reach, also one that was forgotten
			// itself and has not heard of it.
			"unasked": func(rt *rapid.T) {
				if rapid.Bool().Draw(rt, "first one is lost") {
					isolate(h())
				}
				for _, at := range w.hosts {
					var dead []cluster.NodeID
					var lost []*host
					for n := range cluster.All[cluster.Node](at.replica.Snapshot()) {
						if o := w.host(string(n.ID)); o != at && !w.reaches(at, o) {
							dead, lost = append(dead, o.id), append(lost, o)
						}
					}
					if len(dead) == 0 || at.TakeoverUnasked(ctx, dead...) != nil {
						continue
					}
					unasked += len(dead)
					if at.gone {
						rt.Fatalf("%s was forgotten, and forgets %v", at.id, dead)
					}
					for _, o := range lost {
						o.gone = true
					}
				}
			},
		})
		w.heal()
		w.spread()
		w.unique(rt)
	})
	if !testing.Short() && (forgotten == 0 || unasked == 0) { // twenty histories may have none
		t.Errorf("%d hosts were forgotten, %d unasked: this proves nothing", forgotten, unasked)
	}
	t.Logf("%d hosts were forgotten, %d unasked", forgotten, unasked)
}
