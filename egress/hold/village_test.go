package hold

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/lan"
	"github.com/grapevine-net/grapevine/host/nat"
	"github.com/grapevine-net/grapevine/replica"
	"github.com/grapevine-net/grapevine/replica/replicatest"
)

// village is some hosts on a LAN, which hear each other by another one or by the same.
type village struct {
	t     *testing.T
	now   time.Time
	hosts []*villager
	one   bool       // each host has one cable for both
	mu    sync.Mutex // of what follows and of the hosts' links: it is also asked beside the rounds
	log   []string
}

type villager struct {
	v     *village
	n     int
	r     *replica.Replica
	k     *Keeper
	has   bool
	lan   bool // its link
	wire  bool // its way to the others
	side  bool // of a partition
	met   []time.Time
	until time.Time // its agent stands still
	claim func(net.HardwareAddr)
	words int // to the LAN
}

func (h *villager) id() cluster.NodeID { return cluster.NodeID(fmt.Sprintf("%016x", h.n+1)) }
func (h *villager) mac() net.HardwareAddr {
	return net.HardwareAddr{2, 0, 0, 0, 1, byte(h.n + 1)}
}
func (h *villager) Look() (View, error) { return h, nil }

// Announce has those on its LAN hear it that hold the address as well.
func (h *villager) Announce(string, netip.Addr) error {
	h.v.mu.Lock()
	defer h.v.mu.Unlock()
	h.words++
	for _, o := range h.v.hosts {
		if o != h && o.claim != nil && o.lan && h.lan && o.side == h.side {
			o.claim(h.mac())
		}
	}
	return nil
}
func (h *villager) Guard(_ string, _ netip.Addr, claimed func(net.HardwareAddr)) (end func(), over <-chan struct{}, err error) {
	h.v.mu.Lock()
	defer h.v.mu.Unlock()
	ch := make(chan struct{})
	h.claim = claimed
	return func() {
		h.v.mu.Lock()
		defer h.v.mu.Unlock()
		h.claim = nil
		close(ch)
	}, ch, nil
}
func (h *villager) Linked(string) bool {
	h.v.mu.Lock()
	defer h.v.mu.Unlock()
	return h.lan
}
func (h *villager) Add(string, netip.Addr) error {
	h.v.mu.Lock()
	defer h.v.mu.Unlock()
	h.has = true
	h.v.say("host%d has it", h.n+1)
	return nil
}
func (h *villager) Remove(netip.Addr) error {
	h.v.mu.Lock()
	defer h.v.mu.Unlock()
	if h.has {
		h.v.say("host%d has it no more", h.n+1)
	}
	h.has = false
	return nil
}
func (h *villager) Ours() (list []netip.Addr) {
	h.v.mu.Lock()
	defer h.v.mu.Unlock()
	if h.has {
		list = append(list, mail)
	}
	return list
}
func (h *villager) Find(a netip.Addr) lan.Place {
	h.v.mu.Lock()
	defer h.v.mu.Unlock()
	cut := !h.lan
	if a != mail && !h.v.one { // the address by which the others know it
		cut = !h.wire
	}
	return lan.Place{NIC: "eth0", MAC: h.mac(), Cut: cut, Here: h.has, Ours: h.has}
}
func (h *villager) Probe(context.Context, string, netip.Addr) (net.HardwareAddr, error) {
	h.v.mu.Lock()
	defer h.v.mu.Unlock()
	for _, o := range h.v.hosts {
		if o != h && o.has && o.lan && h.lan && o.side == h.side {
			return o.mac(), nil
		}
	}
	return nil, nil
}

func (v *village) say(format string, a ...any) {
	v.log = append(v.log, fmt.Sprintf("%6.1f ", v.now.Sub(v.hosts[0].k.started).Seconds())+fmt.Sprintf(format, a...))
}

// joined reports whether packets pass between two hosts' agents.
func (v *village) joined(a, b *villager) bool { return a == b || a.wire && b.wire && a.side == b.side }

func newVillage(t *testing.T, hosts int, one, quorum bool) *village {
	v := &village{t: t, one: one}
	var bodies []cluster.Body
	for n := range hosts {
		h := &villager{v: v, n: n, lan: true, wire: true, met: make([]time.Time, hosts)}
		v.hosts = append(v.hosts, h)
		bodies = append(bodies, cluster.Node{ID: h.id(), Name: fmt.Sprint("host", n+1), VTEP: netip.AddrFrom4([4]byte{192, 0, 2, byte(n + 1)})})
	}
	for n, h := range v.hosts {
		h.r = replicatest.New(t, h.id(), bodies[n])
		if n == 0 {
			replicatest.Put(t, h.r, cluster.Network{Name: "blue", VNID: 5}, cluster.Subnet{Prefix: subnet, Network: "blue"}, cluster.Egress{Name: "mail", Networks: []string{"blue"}, Addrs: []netip.Addr{mail}, Quorum: quorum})
		}
		heard := func(id cluster.NodeID) bool {
			for m, o := range v.hosts {
				if o.id() == id {
					return o == h || v.now.Sub(h.met[m]) < 800*time.Millisecond
				}
			}
			return false
		}
		h.k = New(Config{Self: h.id(), Replica: h.r, Alive: heard, Hear: func(id cluster.NodeID) (is, known bool) { return heard(id), true }, LAN: h, Log: slog.New(slog.DiscardHandler)})
	}
	v.now = v.hosts[0].k.started
	for _, h := range v.hosts {
		h.k.Begin(func([]nat.Source) error { return nil }, func(context.Context) error { return nil })
	}
	return v
}

// tick lets a tenth of a second pass.
func (v *village) tick(n int, r *rand.Rand) {
	for _, a := range v.hosts {
		for m, b := range v.hosts {
			if v.joined(a, b) && !v.now.Before(b.until) && r.IntN(4) > 0 {
				a.met[m] = v.now
			}
			if a == b || !v.joined(a, b) || v.now.Before(a.until) || v.now.Before(b.until) || (n+a.n+m)%3 != 0 {
				continue
			}
			for msg := range b.r.Missing(a.r.Digest(), 1<<16) {
				if _, err := a.r.Merge(msg); err != nil {
					v.t.Fatal(err)
				}
			}
		}
	}
	for _, i := range r.Perm(len(v.hosts)) {
		if h := v.hosts[i]; !v.now.Before(h.until) {
			h.k.step(v.t.Context(), h.r.Snapshot(), v.now)
		}
	}
	v.now = v.now.Add(tick)
}

// holders are those who have the address, and a link.
func (v *village) holders() (list []*villager) {
	for _, h := range v.hosts {
		if h.has && h.lan {
			list = append(list, h)
		}
	}
	return list
}

// TestVillage: whatever links do, in the end one host has the address, all know which, and it took a bounded number of records; while
// all hear each other it is never on two for long, and never on none while somebody has a good link.
func TestVillage(t *testing.T) {
	const lives, busy, calm, tolerance = 12, 900, 800, 40 // of a tenth of a second the last three
	for life := range lives {
		r := rand.New(rand.NewPCG(31, uint64(life)))
		one, quorum := life%2 == 0, life%4 >= 2
		v := newVillage(t, 3, one, quorum)
		fail := func(format string, a ...any) {
			t.Helper()
			t.Errorf("life %d (one cable: %v, quorum: %v): %s\n%s", life, one, quorum, fmt.Sprintf(format, a...), strings.Join(v.log[max(0, len(v.log)-40):], "\n"))
		}
		for n := range 100 {
			v.tick(n, r)
		}
		for _, often := range []int{12, 60, 250} { // one event in so many tenths of a second
			began := v.hosts[0].r.Snapshot().Rev()
			two, none := 0, 0
			good := make([]int, len(v.hosts)) // for how long each has had a link
			for n := range busy + calm {
				v.mu.Lock()
				if n < busy && r.IntN(often) == 0 {
					switch h := v.hosts[r.IntN(len(v.hosts))]; r.IntN(6) {
					case 0, 1, 2:
						h.lan = !h.lan
						if one {
							h.wire = h.lan
						}
						v.say("host%d link %v", h.n+1, h.lan)
					case 3:
						if !one {
							h.wire = !h.wire
							v.say("host%d wire %v", h.n+1, h.wire)
						}
					case 4:
						d := time.Duration(r.IntN(30)) * tick
						h.until = v.now.Add(d)
						v.say("host%d stands still for %v", h.n+1, d)
					case 5:
						h.side = !h.side
						v.say("host%d is on the other side", h.n+1)
					}
				}
				if n == busy {
					for _, h := range v.hosts {
						h.lan, h.wire, h.side = true, true, false
					}
					v.say("all links are there")
				}
				v.mu.Unlock()
				v.tick(n, r)
				v.mu.Lock()
				whole := true
				for i, h := range v.hosts {
					whole = whole && h.wire && h.side == v.hosts[0].side && !v.now.Before(h.until)
					if good[i]++; !h.lan {
						good[i] = 0
					}
				}
				have := v.holders()
				v.mu.Unlock()
				if two++; !whole || len(have) < 2 {
					two = 0
				}
				if none++; !whole || len(have) > 0 || slices.Max(good) < 320 {
					none = 0
				}
				if two > tolerance || none > tolerance {
					fail("for %d tenths of a second %d have it", tolerance, len(have))
					return
				}
			}
			v.mu.Lock()
			have := v.holders()
			v.mu.Unlock()
			for _, h := range v.hosts {
				by, _ := cluster.Get[cluster.EgressHolder](h.r.Snapshot(), "mail")
				if len(have) != 1 || have[0].id() != by.Host || h.k.Serves("mail") != (h == have[0]) {
					fail("in the end %d have it, by host%d's record %q; it serves: %v, and has notes %+v", len(have), h.n+1, by.Host, h.k.Serves("mail"), h.k.Notes()["mail"])
					return
				}
			}
			if n := v.hosts[0].r.Snapshot().Rev() - began; n > busy/2 {
				fail("%d changes of the state in %d tenths of a second", n, busy+calm)
			}
		}
	}
}
