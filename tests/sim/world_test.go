package sim

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/gossip/memnet"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/ipam"
	"github.com/grapevine-net/grapevine/replica"
	"github.com/grapevine-net/grapevine/ring"
)

// cidr is the default of the setting cidr4.
var cidr = netip.MustParsePrefix("10.128.0.0/14")

// host is what an agent is without Docker and Open vSwitch.
type host struct {
	*gossip.Gossip
	replica *replica.Replica
	alloc   *ipam.Allocator
	id      cluster.NodeID
	addr    netip.AddrPort
	stop    func() // the power goes: without a word to the peers
	gone    bool
}

// world is a cluster.
type world struct {
	t     testing.TB
	net   *memnet.Network
	dir   string // of state files
	seed  uint64
	hosts []*host
	next  int   // number of the next host; none is used twice
	bare  bool  // hosts have no allocator
	last  *host // of which agreed or meet was not true
	began time.Duration

	meanwhile func() // what goes on while one waits, or nil

	mu      sync.Mutex
	genuine map[[sha256.Size]byte]cluster.Record // that some host has verified
}

func newWorld(t testing.TB, dir string) *world {
	return &world{t: t, net: memnet.New(*seed), dir: dir, seed: *seed, began: real(), genuine: map[[sha256.Size]byte]cluster.Record{}}
}

// say tells whoever waits how far it is.
func (w *world) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%8.0f s, %.0f s of a processor: %s\n", (real() - w.began).Seconds(), processor().Seconds(), fmt.Sprintf(format, args...))
}

// key makes the identities of hosts repeat with the seed.
func (w *world) key(i int) ed25519.PrivateKey {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], w.seed)
	binary.BigEndian.PutUint64(b[8:], uint64(i))
	sum := sha256.Sum256(b[:])
	return ed25519.NewKeyFromSeed(sum[:])
}

func addr(i int) netip.AddrPort {
	i++
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, byte(16 + i>>16), byte(i >> 8), byte(i)}), gossip.DefaultPort)
}

// add starts one more host. The first one seeds the cluster, the others join it.
func (w *world) add() *host {
	w.t.Helper()
	i := w.next
	w.next++
	h := &host{addr: addr(i)}
	h.id = cluster.HostID(cluster.Public(w.key(i)))
	db, err := store.Open(filepath.Join(w.dir, fmt.Sprintf("%d.db", i)))
	w.must(err)
	h.replica, err = replica.Open(db, h.id, replica.Signed(w.key(i)), replica.Verified(w.verify))
	w.must(err)
	transport, err := w.net.Listen(h.addr)
	w.must(err)
	log := slog.New(slog.DiscardHandler)
	cfg := gossip.Config{
		Node: string(h.id), Name: fmt.Sprintf("host%d", i), Bind: h.addr, Transport: transport,
		Keys: [][]byte{[]byte("0123456789abcdef0123456789abcdef")}, Join: []string{addr(0).String(), addr(1).String()}, Log: log,
		Left: func(node string) bool { return h.replica.Snapshot().Left(cluster.NodeID(node)) },
	}
	if i == 0 {
		cfg.ClusterID = "simulated"
	}
	if i == 0 && !w.bare {
		w.must(ipam.Seed(h.replica, h.id))
	}
	h.Gossip, err = gossip.New(cfg, h.replica)
	w.must(err)
	h.alloc, err = ipam.New(ipam.Config{
		Self: h.id, CIDRs: func() []netip.Prefix { return []netip.Prefix{cidr} }, Bits: 22, Now: time.Now, Age: db.Age, Log: log,
	}, h.replica, h.Gossip, ipam.StoreDisk{DB: db})
	w.must(err)
	for method, handler := range h.alloc.Methods() {
		h.Handle(method, handler)
	}
	w.must(h.write(func(tx *replica.Tx) error {
		return tx.Put(cluster.Node{ID: h.id, Name: cfg.Name, VTEP: h.addr.Addr(), Gossip: h.addr, VXLANPort: 4789, MTU: 1500, Datapath: "kernel"})
	}))
	ctx, cancel := context.WithCancel(context.Background())
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return h.Run(ctx) })
	tasks.Go(func() error { return h.replica.Run(ctx) })
	if !w.bare {
		tasks.Go(func() error { return h.alloc.Run(ctx) })
	}
	tasks.Go(func() error { return h.broadcast(ctx) })
	h.stop = func() {
		if h.gone {
			return
		}
		h.gone = true
		cancel()
		w.must(tasks.Wait())
		_ = h.Close()
		w.must(db.Close())
	}
	w.hosts = append(w.hosts, h)
	return h
}

// broadcast hands the host's writes to gossip, as the agent does.
func (h *host) broadcast(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case message := <-h.replica.Outbox():
			h.Broadcast(message)
		}
	}
}

// leave takes the host out of the cluster as the agent does: it gives away what it owns,
// deletes what it says of itself, and says good-bye. With much loss it has to be told again,
// as its error says.
func (h *host) leave(ctx context.Context) error {
	err := h.alloc.Leave(ctx)
	for try := 0; err != nil && try < 5; try++ {
		err = h.alloc.Leave(ctx)
	}
	if err != nil {
		return err
	}
	err = h.write(func(tx *replica.Tx) error {
		tx.Delete(cluster.Node{ID: h.id}.Key())
		return nil
	})
	if err != nil {
		return err
	}
	return h.Leave(ctx)
}

// sees reports whether the host takes another one for alive.
func (h *host) sees(other *host) bool {
	m, ok := h.Member(string(other.id))
	return ok && m.State == gossip.Alive
}

// doubts reports whether the host takes another one for silent, or for dead.
func (h *host) doubts(other *host) bool {
	m, ok := h.Member(string(other.id))
	return !ok || m.State != gossip.Alive || m.Doubtful
}

// lists reports whether the other host is in what this one knows of the cluster.
func (h *host) lists(other *host) bool {
	_, ok := cluster.Get[cluster.Node](h.replica.Snapshot(), string(other.id))
	return ok
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Helper()
		w.t.Fatal(err)
	}
}

func (h *host) write(f func(*replica.Tx) error) error {
	_, err := h.replica.Update(f)
	return err
}

// alive are the hosts that have not gone.
func (w *world) alive() (list []*host) {
	for _, h := range w.hosts {
		if !h.gone {
			list = append(list, h)
		}
	}
	return list
}

// within waits until f is true and returns how long that took; -1: longer than limit.
func (w *world) within(limit time.Duration, f func() bool) time.Duration {
	begin := time.Now()
	for !f() {
		if time.Since(begin) > limit {
			return -1
		}
		w.pass()
	}
	return time.Since(begin)
}

// pass lets a tick pass.
func (w *world) pass() {
	time.Sleep(tick)
	if w.meanwhile != nil {
		w.meanwhile()
	}
}

// known waits until f is true of all hosts but one, and returns how long that took for each,
// and for the last; -1: longer than limit.
func (w *world) known(limit time.Duration, but *host, f func(*host) bool) (each []time.Duration, all time.Duration) {
	begin := time.Now()
	waiting := slices.DeleteFunc(w.alive(), func(h *host) bool { return h == but })
	all = w.within(limit, func() bool {
		waiting = slices.DeleteFunc(waiting, func(h *host) bool {
			if !f(h) {
				return false
			}
			each = append(each, time.Since(begin))
			return true
		})
		return len(waiting) == 0
	})
	return each, all
}

// tick is how exactly times are taken.
const tick = 10 * time.Millisecond

// verify is cluster.Verify for all hosts. What one of them has verified, to the bit, the
// others do not verify again, nor does each keep a body of its own in memory: a thousand
// hosts would have the processor, and the memory, for that.
func (w *world) verify(recs []cluster.Record) (good []cluster.Record, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var unknown []cluster.Record
	for i := range recs {
		if rec, ok := w.genuine[sha256.Sum256(cluster.Encode(recs[i:i+1]))]; ok {
			good = append(good, rec)
		} else {
			unknown = append(unknown, recs[i])
		}
	}
	fresh, err := cluster.Verify(unknown)
	for i := range fresh {
		raw := cluster.Encode(fresh[i : i+1])
		one, err := cluster.Decode(raw) // which keeps no more than raw in memory
		w.must(err)
		w.genuine[sha256.Sum256(raw)] = one[0]
	}
	return append(good, fresh...), err
}

// all reports whether f is true of all hosts that run. Of which it was not true is asked
// first the next time, and mostly the only one that is asked: this is called each tick.
func (w *world) all(f func(*host) bool) bool {
	if w.last != nil && !w.last.gone && !f(w.last) {
		return false
	}
	for _, h := range w.alive() {
		if !f(h) {
			w.last = h
			return false
		}
	}
	return true
}

// agreed reports whether all hosts know the same. It asks each for its own view of
// everything: marks of all writers, and what came early.
func (w *world) agreed() bool {
	first := w.alive()[0].replica.Digest()
	return w.all(func(h *host) bool { return bytes.Equal(h.replica.Digest(), first) })
}

// meet reports whether all hosts see each other.
func (w *world) meet() bool {
	others := len(w.alive()) - 1
	return w.all(func(h *host) bool { return len(h.Alive()) == others })
}

// slow is how long hosts may differ before it is said in what.
const slow = 3 * time.Second

// unanimous waits until all hosts know the same and see each other, and returns how long
// that took; -1: longer than limit. Of what takes long it tells who differs, and in what.
func (w *world) unanimous(limit time.Duration) time.Duration {
	begin, next := time.Now(), slow
	return w.within(limit, func() bool {
		if w.meet() && w.agreed() {
			return true
		}
		if time.Since(begin) >= next {
			next += slow
			// All are compared with the first one: either may lack what the other has.
			for _, h := range []*host{w.last, w.alive()[0]} {
				w.say("after %v host %s %s; its gossip: %v", time.Since(begin), h.addr, w.difference(h), h.Stats())
			}
		}
		return false
	})
}

// difference says whom of the others a host does not see, and what of all that some host
// knows it does not.
func (w *world) difference(h *host) string {
	var text []string
	for _, other := range w.alive() {
		if other != h && !h.sees(other) {
			m, known := h.Member(string(other.id))
			text = append(text, fmt.Sprintf("it sees %s as %q (met: %v)", other.addr, m.State, known))
		}
	}
	newest := map[cluster.NodeID]uint64{}
	for _, other := range w.alive() {
		for id, counter := range other.replica.Snapshot().Digest().Marks {
			newest[id] = max(newest[id], counter)
		}
	}
	digest := h.replica.Snapshot().Digest()
	for id, counter := range newest {
		if have := digest.Marks[id]; have != counter {
			text = append(text, fmt.Sprintf("of writer %s it knows %d of %d", id, have, counter))
		}
	}
	if digest.Early != 0 {
		text = append(text, "records came early")
	}
	if n := len(text); n > 8 {
		text = append(text[:8], fmt.Sprintf("and %d more", n-8))
	}
	return cmp.Or(strings.Join(text, ", "), "lacks nothing")
}

// owners fails the test if a number has two owners, by what each host says of itself, or
// none: neither a host that runs nor, by what those know, one that has gone. (A gift on
// its way to a host that dies is that host's, until it is forgotten.) What a host says that
// has left does not count: what it was given as it left is its giver's again, of which it
// does not hear, and it hands out nothing (ipam TestWhoHasLeftHandsOutNothing).
func (w *world) owners() {
	w.t.Helper()
	if w.bare {
		return
	}
	known := w.alive()[0].replica.Snapshot().Ring()
	for _, all := range []netip.Prefix{cidr, netip.MustParsePrefix("0.0.0.0/8")} {
		var own, sum []netip.Prefix
		for _, h := range w.hosts {
			blocks := h.replica.Snapshot().Ring().Owned(h.id, all)
			if !h.replica.Snapshot().Left(h.id) {
				own = append(own, blocks...)
			}
			if h.gone {
				blocks = known.Owned(h.id, all)
			}
			sum = append(sum, blocks...)
		}
		disjoint(w.t, own)
		if n := ring.Count(sum); n != ring.Count([]netip.Prefix{all}) {
			w.t.Errorf("of %s %d numbers are owned by somebody", all, n)
		}
	}
}
