package ipam

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

type replicaTx = replica.Tx

var soak = flag.Int("soak", 400, "networks that TestSoakOfNetworks makes and removes")

// retire ends a network as the driver does, at whichever host.
func (h *host) retire(name string, p netip.Prefix) {
	h.deleteSubnet(p)
	h.deleteKey(cluster.Network{Name: name}.Key())
}

// trickle delivers some of what b lacks from a, record by record, in any order; the rest
// is lost until they compare again.
func (w *world) trickle(a, b *host, n int, shuffle func([][]byte)) {
	if a == b || !w.reaches(a, b) {
		return
	}
	var msgs [][]byte
	for msg := range a.replica.Missing(b.replica.Digest(), 1) {
		msgs = append(msgs, slices.Clone(msg))
	}
	shuffle(msgs)
	for _, msg := range msgs[:min(n, len(msgs))] {
		if _, err := b.replica.Merge(msg); err != nil && !slices.ContainsFunc(w.hosts, func(h *host) bool { return h.gone }) {
			w.t.Fatalf("%s merges from %s: %v", b.id, a.id, err)
		}
	}
}

// homecoming has all hosts send home what they have to, until nothing moves.
func (w *world) homecoming() {
	w.heal()
	for range 2 * len(w.hosts) {
		w.spread()
		for _, h := range w.hosts {
			must(w.t, h.homing.sendHome())
		}
	}
	w.spread()
}

// owners is what each host owns of the cluster's ranges.
func (w *world) owners() (s string) {
	r := w.hosts[0].replica.Snapshot().Ring()
	for _, cidr := range w.hosts[0].core.cfg.CIDRs() {
		for _, h := range w.hosts {
			s += fmt.Sprintf("%s of %s: %v\n", h.id, cidr, r.Owned(h.id, cidr))
		}
	}
	return s
}

// pieces are blocks that a host owns in which no usual network fits.
func (w *world) pieces() (s string) {
	for _, cidr := range w.hosts[0].core.cfg.CIDRs() {
		for _, h := range w.hosts {
			for _, b := range w.hosts[0].replica.Snapshot().Ring().Owned(h.id, cidr) {
				if b.Bits() > h.homing.usualBits(cidr) {
					s += fmt.Sprintf("%s -> %s\n", b, h.id)
				}
			}
		}
	}
	return s
}

// TestSharesComeHomeInAnyOrder makes networks and removes them, while shares of them, their
// records and their tombstones arrive in any order, or not for long. When all is
// over nobody has a piece of a network left, and the largest network is possible again.
func TestSharesComeHomeInAnyOrder(t *testing.T) {
	moved := 0
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, 3)
		defer func() {
			for _, h := range w.hosts {
				_ = h.db.Close()
			}
		}()
		for _, h := range w.hosts {
			h.stockUp(ctx)
		}
		w.spread()
		type made struct {
			name string
			p    netip.Prefix
		}
		var nets []made
		count := 0
		h := func() *host { return w.hosts[rapid.IntRange(0, 2).Draw(rt, "host")] }
		shuffle := func(msgs [][]byte) {
			for i := range msgs {
				j := rapid.IntRange(0, i).Draw(rt, "place")
				msgs[i], msgs[j] = msgs[j], msgs[i]
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": func(rt *rapid.T) { w.unique(rt) },
			"network": func(rt *rapid.T) {
				at := h()
				family, bits := 4, rapid.SampledFrom([]int{20, 24, 24, 24, 26, 29}).Draw(rt, "bits")
				if rapid.IntRange(0, 4).Draw(rt, "IPv6") == 0 {
					family, bits = 6, 64
				}
				if p, err := at.Prefix(ctx, family, bits, rapid.SampledFrom([]int{0, 0, 0, 2}).Draw(rt, "host bits")); err == nil {
					count++
					at.announce(fmt.Sprintf("n%d", count), p)
					nets = append(nets, made{fmt.Sprintf("n%d", count), p})
				}
			},
			"subnet": func(rt *rapid.T) {
				p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 128, byte(rapid.IntRange(0, 255).Draw(rt, "third")), 0}), rapid.IntRange(20, 24).Draw(rt, "bits")).Masked()
				at := h()
				if _, live := at.Subnet(p); !live && at.Pool(ctx, PoolID{Prefix: p}, 0) == nil {
					count++
					at.announce(fmt.Sprintf("n%d", count), p)
					nets = append(nets, made{fmt.Sprintf("n%d", count), p})
				}
			},
			"remove": func(rt *rapid.T) {
				if len(nets) == 0 {
					rt.Skip()
				}
				i := rapid.IntRange(0, len(nets)-1).Draw(rt, "network")
				n := nets[i]
				for _, h := range w.hosts {
					for _, l := range h.Leases() {
						if n.p.Contains(l.Addr) {
							must(t, h.Release(l.Addr))
						}
					}
				}
				nets = slices.Delete(nets, i, i+1)
				at := h()
				at.retire(n.name, n.p)
			},
			"stock":   func(*rapid.T) { h().stockUp(ctx) },
			"home":    func(*rapid.T) { must(t, h().homing.sendHome()) },
			"gossip":  func(*rapid.T) { w.gossip(h(), h()) },
			"trickle": func(rt *rapid.T) { w.trickle(h(), h(), rapid.IntRange(1, 6).Draw(rt, "records"), shuffle) },
			"address": func(rt *rapid.T) {
				if len(nets) > 0 {
					_, _ = h().Address(ctx, rapid.SampledFrom(nets).Draw(rt, "network").p, anywhere, anyAddr)
				}
			},
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
		for _, h := range w.hosts {
			for _, l := range h.Leases() {
				must(t, h.Release(l.Addr))
			}
			for p := range h.core.state.pools {
				must(t, h.PoolDone(p))
			}
		}
		for s := range cluster.All[cluster.Subnet](w.hosts[0].replica.Snapshot()) {
			w.hosts[0].retire(s.Network, s.Prefix)
			moved++
		}
		w.homecoming()
		if left := w.pieces(); left != "" {
			rt.Fatalf("pieces of networks that are gone:\n%s%s", left, w.owners())
		}
		at := h()
		if _, err := at.Prefix(ctx, 4, 17, 0); err != nil {
			rt.Fatalf("half of all is not to be had: %v\n%s", err, w.owners())
		}
	})
	t.Logf("%d networks were there at the end", moved)
}

// TestSoakOfNetworks makes and removes networks one after the other, each host in turn, while
// the others get their shares before or after the end of it. Then everything is
// as it was. -soak says how many.
func TestSoakOfNetworks(t *testing.T) {
	w := newWorld(t, 3)
	for _, h := range w.hosts {
		h.stockUp(ctx)
		w.spread()
	}
	before := w.owners()
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range *soak {
		h := w.hosts[rnd.IntN(3)]
		name := fmt.Sprintf("ci%d", i)
		p := get(h.Prefix(ctx, 4, 24, 0))(t)
		v := get(h.VNID(ctx))(t)
		h.announceVNID(name, p, v)
		acts := []func(){func() { h.retire(name, p) }}
		for _, o := range w.hosts {
			if o != h {
				acts = append(acts, func() { w.gossip(h, o); o.stockUp(ctx); w.gossip(o, h) })
			}
		}
		rnd.Shuffle(len(acts), func(i, j int) { acts[i], acts[j] = acts[j], acts[i] })
		for _, act := range acts {
			act()
		}
		if rnd.IntN(4) == 0 {
			w.spread()
		}
		must(t, w.hosts[rnd.IntN(3)].homing.sendHome())
	}
	w.homecoming()
	if left := w.pieces(); left != "" {
		t.Errorf("pieces of networks that are gone:\n%s", left)
	}
	if after := w.owners(); after != before {
		t.Errorf("before:\n%safter:\n%s", before, after)
	}
	if n := w.hosts[0].replica.Snapshot().Ring().Len(); n > 256*8 {
		t.Errorf("%d claims for 256 prefixes", n)
	}
	for _, h := range w.hosts {
		if len(h.core.state.leases)+len(h.core.state.pools) > 0 || len(h.core.state.cursors) > 64 || len(h.asker.backoff.until) > 1000 {
			t.Errorf("%s: %d leases, %d pools, %d cursors, %d tries", h.id, len(h.core.state.leases), len(h.core.state.pools), len(h.core.state.cursors), len(h.asker.backoff.until))
		}
	}
	_ = get(w.hosts[2].Prefix(ctx, 4, 17, 0))(t) // half of all, as at first
	t.Logf("%d networks: %d claims, %d records", *soak, w.hosts[0].replica.Snapshot().Ring().Len(), w.hosts[0].replica.Snapshot().Len())
}

// TestLeakedSharesComeBack: what older agents left behind, of which no tombstone tells any
// more, comes home, and what is too large to tell from stock is collected when it is needed.
func TestLeakedSharesComeBack(t *testing.T) {
	w := newWorld(t, 3)
	a, b, c := w.hosts[0], w.hosts[1], w.hosts[2]
	for _, h := range w.hosts {
		h.stockUp(ctx)
		w.spread()
	}
	give := func(from, to *host, blocks ...string) {
		for _, block := range blocks {
			from.core.mu.Lock()
			_ = get(from.core.claim(to.id, netip.MustParsePrefix(block)))(t)
			from.core.mu.Unlock()
		}
		w.spread()
	}
	before := w.owners()
	give(a, b, "10.128.4.128/25", "10.128.5.128/25", "fd12:3456:789a:8::1:0/112")
	give(b, c, "10.128.4.192/26")
	w.homecoming()
	if after := w.owners(); after != before {
		t.Errorf("before:\n%safter:\n%s", before, after)
	}
	give(a, b, "10.128.16.0/20")
	give(a, c, "10.128.32.0/20")
	give(b, c, "10.128.128.0/20")
	w.homecoming()
	_ = get(a.Prefix(ctx, 4, 17, 0))(t)
}

func (h *host) deleteKey(k cluster.Key) {
	_, err := h.replica.Update(func(tx *replicaTx) error { tx.Delete(k); return nil })
	must(h.w.t, err)
}

func (h *host) announceVNID(name string, p netip.Prefix, v uint32) {
	s, _ := h.Subnet(p)
	s.Network = name
	_, err := h.replica.Update(func(tx *replicaTx) error {
		_ = tx.Put(cluster.Network{Name: name, VNID: v})
		return tx.Put(s)
	})
	must(h.w.t, err)
	must(h.w.t, h.PoolDone(p))
}

// TestPrefixesComeAround: of small networks that come and go one after the other a host uses few prefixes again and again. Each that
// had other hosts' shares leaves claims in the ring for good.
func TestPrefixesComeAround(t *testing.T) {
	w := newWorld(t, 2)
	for _, h := range w.hosts {
		h.stockUp(ctx)
		w.spread()
	}
	h, o := w.hosts[0], w.hosts[1]
	before := h.replica.Snapshot().Ring().Len()
	const most = 1 << rounds
	seen := map[netip.Prefix]bool{}
	for i := range most + most/2 {
		name := fmt.Sprintf("ci%d", i)
		p := get(h.Prefix(ctx, 4, 28, 0))(t)
		seen[p] = true
		h.announce(name, p)
		w.gossip(h, o)
		addr := get(o.Address(ctx, p, anywhere, anyAddr))(t)
		must(t, o.Release(addr))
		w.gossip(o, h)
		h.retire(name, p)
		w.gossip(h, o)
		must(t, o.homing.sendHome())
		w.gossip(o, h)
	}
	claims := h.replica.Snapshot().Ring().Len() - before
	if len(seen) > most+1 || claims > 2*len(seen) {
		t.Errorf("%d prefixes were used, and left %d claims, where %d are enough", len(seen), claims, most)
	}
}

// TestGivenWithWhatIsAround: a host that is given all of a block in pieces, and claims it at once, shows all that proves that it may,
// also what the giver showed when it claimed the whole, of which nobody had heard.
func TestGivenWithWhatIsAround(t *testing.T) {
	w := newWorld(t, 4)
	a, b, taker, off := w.hosts[0], w.hosts[1], w.hosts[2], w.hosts[3]
	claim := func(h *host, owner cluster.NodeID, block string) {
		h.core.mu.Lock()
		defer h.core.mu.Unlock()
		_ = get(h.core.claim(owner, netip.MustParsePrefix(block)))(t)
	}
	claim(a, b.id, "10.128.4.0/26")
	w.spread()
	claim(b, a.id, "10.128.4.0/26")
	w.gossip(b, a)
	w.gossip(b, taker)
	claim(a, a.id, "10.128.4.0/24")
	for _, half := range []string{"10.128.4.0/25", "10.128.4.128/25"} {
		must(t, taker.prefixes.obtainPiece(ctx, netip.MustParsePrefix(half)))
	}
	claim(taker, taker.id, "10.128.4.0/24")
	w.gossip(taker, a)
	w.spread()
	if !off.replica.Snapshot().Ring().OwnsAll(taker.id, netip.MustParsePrefix("10.128.4.0/24")) {
		t.Errorf("who was off believes\n%s", w.claims(netip.MustParseAddr("10.128.4.1")))
	}
}
