package ipam

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/host/store/storetest"
	"github.com/grapevine-net/grapevine/reach"
	"github.com/grapevine-net/grapevine/replica"
)

// world is a cluster of allocators in one process. Calls reach their peer
// directly, unless a link is cut or the reply is to be lost; records spread only
// by gossip, when the test says so.
type world struct {
	t     testing.TB
	hosts []*host
	now   time.Time
	cut   map[[2]cluster.NodeID]bool
	// loseReplies makes calls take effect and yet fail.
	loseReplies bool
	calls       atomic.Int32
	// heard is told of each call that is sent; fakes answer calls in a host's stead.
	heard  func(from, to cluster.NodeID, method string, body []byte)
	fakes  map[cluster.NodeID]func(method string, body []byte) ([]byte, error)
	things map[cluster.NodeID][]reach.Thing // what hosts reach by themselves, as all know
}

type host struct {
	*Allocator
	w       *world
	id      cluster.NodeID
	path    string
	db      *store.DB
	replica *replica.Replica
	down    bool
	life    storetest.Life
	gone    bool // forgotten by the others: what it hands out is no affair of theirs
	bits    int
}

func newWorld(t testing.TB, n int) *world {
	w := &world{t: t, now: time.Unix(1_700_000_000, 0), cut: map[[2]cluster.NodeID]bool{}}
	dir, err := os.MkdirTemp("/dev/shm", "grapevine-ipam-") // what is written has not to wait for a disk
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for i := range n {
		h := &host{w: w, id: cluster.NodeID(fmt.Sprintf("%016x", i+1)), path: filepath.Join(dir, fmt.Sprintf("%d.db", i)), bits: 24}
		h.open()
		w.hosts = append(w.hosts, h)
		t.Cleanup(func() { _ = h.db.Close() })
	}
	must(t, Seed(w.hosts[0].replica, w.hosts[0].id))
	w.spread()
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func get[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// open starts the host's agent from its disk.
func (h *host) open() {
	t := h.w.t
	h.db = get(store.Open(h.path))(t)
	h.replica = get(replica.Open(h.db, h.id, replica.Judged(h.mayForget, h.promisedAway), replica.Aged(func() time.Duration { return h.w.now.Sub(time.Unix(1_700_000_000, 0)) })))(t)
	h.Allocator = get(New(Config{
		Self: h.id, CIDRs: func() []netip.Prefix {
			return []netip.Prefix{netip.MustParsePrefix("10.128.0.0/16"), netip.MustParsePrefix("fd12:3456:789a::/48")}
		}, Bits: h.bits,
		Reach:  func() Reach { return h.reach() },
		Sign:   func(b []byte) []byte { return toySignature(h.id, b) },
		Signed: func(by cluster.NodeID, b, sig []byte) bool { return bytes.Equal(sig, toySignature(by, b)) },
		Halt:   func() error { return h.replica.Trouble() }, // as the agent's
		Now:    func() time.Time { return h.w.now }, Age: func() time.Duration { return h.w.now.Sub(time.Unix(1_700_000_000, 0)) }, Log: slog.New(slog.DiscardHandler),
	}, storetest.Replica{Replica: h.replica, Life: &h.life}, h, StoreDisk{storetest.DB{DB: h.db, Life: &h.life}}))(t)
	if h.replica.Snapshot().Left(h.id) {
		return
	}
	_ = get(h.replica.Update(func(tx *replica.Tx) error {
		_ = tx.Put(cluster.Node{ID: h.id, Name: "h" + string(h.id[15:])})
		return nil
	}))(t)
}

// reach is what h knows of what the hosts reach: of itself, and what their records say.
func (h *host) reach() reach.Model {
	return reach.Model{Self: h.id, Here: h.w.things[h.id], Snap: h.replica.Snapshot(), CIDRs: []netip.Prefix{
		netip.MustParsePrefix("10.128.0.0/16"), netip.MustParsePrefix("fd12:3456:789a::/48"),
	}}
}

// has gives h something that it reaches by itself, which its record says from then on.
func (h *host) has(kind reach.Kind, name string, prefixes ...string) {
	var list []reach.Thing
	for _, p := range prefixes {
		list = append(list, reach.Thing{Prefix: netip.MustParsePrefix(p), Kind: kind, Name: name})
	}
	if h.w.things == nil {
		h.w.things = map[cluster.NodeID][]reach.Thing{}
	}
	h.w.things[h.id] = list
	_ = get(h.replica.Update(func(tx *replica.Tx) error {
		return tx.Put(cluster.Node{ID: h.id, Name: "h" + string(h.id[15:]), Reaches: reach.Record(list, nil, nil)})
	}))(h.w.t)
}

// toySignature stands for one with the key of a host.
func toySignature(by cluster.NodeID, b []byte) []byte {
	sum := sha256.Sum256(append([]byte(by), b...))
	return sum[:]
}

// mayForget is what the agent says: it has promised so, or cannot know better.
func (h *host) mayForget(heir, dead cluster.NodeID) bool {
	return h.Allocator != nil && h.MayForget(heir, dead, func() bool { return !slices.Contains(h.Alive(), string(dead)) })
}

func (h *host) promisedAway(dead cluster.NodeID) bool {
	return h.Allocator != nil && h.PromisedAway(dead)
}

// restart ends the agent as a crash would and starts it again.
func (h *host) restart() {
	must(h.w.t, h.db.Close())
	h.life = storetest.Life{}
	h.open()
}

func (w *world) reaches(a, b *host) bool {
	return !a.down && !b.down && !a.life.Over && !b.life.Over && !w.cut[[2]cluster.NodeID{a.id, b.id}]
}

func (w *world) host(id string) *host {
	for _, h := range w.hosts {
		if string(h.id) == id {
			return h
		}
	}
	return nil
}

// Call and Alive make a host its own Peers.
func (h *host) Call(ctx context.Context, node, method string, body []byte) ([]byte, error) {
	to := h.w.host(node)
	if to == nil || !h.w.reaches(h, to) {
		return nil, context.DeadlineExceeded
	}
	h.w.calls.Add(1)
	if h.w.heard != nil {
		h.w.heard(h.id, to.id, method, body)
	}
	if fake := h.w.fakes[to.id]; fake != nil {
		return fake(method, body)
	}
	reply, err := to.Methods()[method](ctx, string(h.id), body)
	if h.w.loseReplies || h.life.Over || to.life.Over {
		return nil, context.DeadlineExceeded
	}
	return reply, err
}

func (h *host) Alive() (ids []string) {
	for _, o := range h.w.hosts {
		if o != h && h.w.reaches(h, o) {
			ids = append(ids, string(o.id))
		}
	}
	return ids
}

// gossip sends what b lacks from a.
func (w *world) gossip(a, b *host) {
	if a == b || !w.reaches(a, b) {
		return
	}
	for msg := range a.replica.Missing(b.replica.Digest(), 1<<20) {
		if _, err := b.replica.Merge(msg); err != nil && !slices.ContainsFunc(w.hosts, func(h *host) bool { return h.gone }) {
			w.t.Fatalf("%s merges from %s: %v", b.id, a.id, err)
		}
	}
}

// spread gossips until all that can reach each other know the same.
func (w *world) spread() {
	for range w.hosts {
		for _, a := range w.hosts {
			for _, b := range w.hosts {
				w.gossip(a, b)
			}
		}
	}
}

// network makes a network with one subnet at h and returns its prefix.
func (w *world) network(h *host, name string, hostBits int) netip.Prefix {
	w.t.Helper()
	p := get(h.Prefix(context.Background(), 4, h.bits, hostBits))(w.t)
	h.announce(name, p)
	return p
}

func (h *host) announce(name string, p netip.Prefix) {
	s, ok := h.Subnet(p)
	if !ok {
		h.w.t.Fatalf("subnet %s was not reserved", p)
	}
	s.Network = name
	_, err := h.replica.Update(func(tx *replica.Tx) error {
		_ = tx.Put(cluster.Network{Name: name, VNID: 0})
		_ = tx.Put(s)
		return nil
	})
	must(h.w.t, err)
	must(h.w.t, h.PoolDone(p))
}

// forgetNetwork deletes a subnet's record at h.
func (h *host) deleteSubnet(p netip.Prefix) {
	_, err := h.replica.Update(func(tx *replica.Tx) error {
		tx.Delete(cluster.Subnet{Prefix: p}.Key())
		return nil
	})
	must(h.w.t, err)
}

var (
	anywhere netip.Prefix // no --ip-range
	anyAddr  netip.Addr   // no --ip
)

// claims says what each host believes of the owner of a.
func (w *world) claims(a netip.Addr) (s string) {
	for _, h := range w.hosts {
		s += fmt.Sprintf("at %s:", h.id)
		for c := range h.replica.Snapshot().Ring().Within(single(a)) {
			s += fmt.Sprintf(" %s;", c)
		}
		s += "\n"
	}
	return s
}

// unique fails if an address or a VNID is handed out twice in the whole world, or
// outside what its host owns.
func (w *world) unique(t interface{ Fatalf(string, ...any) }) {
	addrs := map[netip.Addr]cluster.NodeID{}
	vnids := map[uint32]cluster.NodeID{}
	for _, h := range w.hosts {
		if h.down || h.gone {
			continue
		}
		r := h.replica.Snapshot().Ring()
		for _, l := range h.Leases() {
			if o, twice := addrs[l.Addr]; twice {
				t.Fatalf("%s is leased at %s and %s\n%s", l.Addr, o, h.id, w.claims(l.Addr))
			}
			addrs[l.Addr] = h.id
			if !r.OwnsAll(h.id, single(l.Addr)) {
				t.Fatalf("%s is leased at %s, which does not own it", l.Addr, h.id)
			}
		}
		for v := range h.core.state.vnids {
			if o, twice := vnids[v]; twice {
				t.Fatalf("VNID %d is handed out at %s and %s", v, o, h.id)
			}
			vnids[v] = h.id
		}
	}
}
