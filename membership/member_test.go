package membership

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/gossip/memnet"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/ipam"
	"github.com/grapevine-net/grapevine/membership/identity"
	"github.com/grapevine-net/grapevine/replica"
)

var (
	testKey = [][]byte{make([]byte, 32)}
	// clusterRange is what hosts share; what is outside is the commons' sooner or later.
	clusterRange = netip.MustParsePrefix("10.128.0.0/14")
)

// nets are the networks in memory of the tests that run.
var nets sync.Map

// virtual runs a test in virtual time, with a network in memory of its own. It ends when
// memberlist's last timers have, as all goroutines must.
func virtual(t *testing.T, test func(*testing.T)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nets.Store(t.Name(), memnet.New(1))
		t.Cleanup(func() {
			nets.Delete(t.Name())
			time.Sleep(time.Minute)
		})
		test(t)
	})
}

// network is that of a test.
func network(t *testing.T) *memnet.Network {
	n, ok := nets.Load(t.Name())
	if !ok {
		t.Fatal("the test does not run in virtual time")
	}
	return n.(*memnet.Network)
}

// address is where host n of a test gossips.
func address(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), 7946)
}

// testHost is a host's membership without an agent around it.
type testHost struct {
	*Member
	t    *testing.T
	stop func()
}

func carryNothing(*store.DB) (func(*store.DB) error, error) {
	return func(*store.DB) error { return nil }, nil
}

func settings(n int, dir string, join ...int) Config {
	cfg := Config{
		Config: config.Config{
			State: dir, Name: fmt.Sprintf("host%d", n), Keys: testKey, Bind: address(n).Addr(), Port: address(n).Port(),
			CIDR4: clusterRange, PrefixLen: 22, VXLANPort: 4789,
		},
		Log: slog.New(slog.DiscardHandler), Started: time.Now(), Carry: carryNothing,
		Own: func() ([]netip.Addr, error) { return []netip.Addr{address(n).Addr()}, nil },
	}
	for _, j := range join {
		cfg.Join = append(cfg.Join, address(j))
	}
	return cfg
}

func describe(n int) func(*cluster.Snapshot) cluster.Node {
	return func(*cluster.Snapshot) cluster.Node {
		return cluster.Node{VTEP: address(n).Addr(), VXLANPort: 4789, MTU: 1500, Datapath: "kernel"}
	}
}

// newHost opens host n with state in dir; join lists other hosts by their n.
func newHost(t *testing.T, n int, dir string, join ...int) *testHost {
	t.Helper()
	m, err := Identify(settings(n, dir, join...))
	if err != nil {
		t.Fatal(err)
	}
	end, err := network(t).Listen(address(n))
	if err != nil {
		t.Fatal(err)
	}
	h := &testHost{Member: m, t: t}
	stopped := false
	h.stop = func() {
		if stopped {
			return
		}
		stopped = true
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { h.stop() })
	if err := m.Open(Host{
		Addr: address(n).Addr(), Describe: describe(n),
		Own:    func() []netip.Addr { return []netip.Addr{address(n).Addr()} },
		Gossip: func(c *gossip.Config) { c.Transport = end },
	}); err != nil {
		t.Fatal(err)
	}
	return h
}

// run starts the host's tasks; they end with the test, or by stop.
func (h *testHost) run() *testHost { return h.start(h.alloc.Run) }

// start runs what run does, but for the allocator, which asks for shares. Whether the host is
// forgotten the tests ask themselves.
func (h *testHost) start(more ...func(context.Context) error) *testHost {
	ctx, cancel := context.WithCancel(h.t.Context())
	tasks, ctx := errgroup.WithContext(ctx)
	all := h.Tasks()
	delete(all, "ipam")
	delete(all, "forgotten")
	for _, f := range slices.AppendSeq(more, maps.Values(all)) {
		tasks.Go(func() error { return f(ctx) })
	}
	let := h.stop
	stopped := false
	h.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := tasks.Wait(); err != nil {
			h.t.Errorf("%s: %v", h.cfg.Name, err)
		}
		let()
	}
	return h
}

// eventually waits for a condition, ten seconds at most.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within ten seconds: %s", what)
		}
	}
}

// member reports whether the host is in a cluster whose ring it has: all of it, and not only
// the first claim that came.
func (h *testHost) member() bool {
	return h.gossip.ClusterID() != "" && h.replica.Settled() && h.replica.Snapshot().Ring().Len() > 0
}

func TestSeedAndJoiner(t *testing.T) { virtual(t, testSeedAndJoiner) }

func testSeedAndJoiner(t *testing.T) {
	one := newHost(t, 1, t.TempDir(), 1).run()
	eventually(t, "host1 begins a cluster", one.member)
	if !one.replica.Snapshot().Ring().OwnsAll(one.Self(), clusterRange) {
		t.Error("the seed does not own all addresses")
	}
	two := newHost(t, 2, t.TempDir(), 1, 2).run()
	eventually(t, "host2 joins", two.member)
	if a, b := one.gossip.ClusterID(), two.gossip.ClusterID(); a != b {
		t.Errorf("two clusters: %s, %s", a, b)
	}
	eventually(t, "both know both", func() bool {
		return len(one.Nodes(one.replica.Snapshot())) == 2 && len(two.Nodes(two.replica.Snapshot())) == 2
	})
	if names, done := two.Joiner.Hosts(), two.Joiner.Joined(); !slices.Equal(names, []string{"10.0.0.2", "10.0.0.1"}) || !strings.Contains(done.Text, one.gossip.ClusterID()) {
		t.Errorf("a new host is told %q, and whoever has it join again: %s", names, done.Text)
	}
	if p := two.Problems(two.replica.Snapshot()); len(p) != 0 {
		t.Errorf("problems of a whole cluster: %v", p)
	}
	if id, err := identity.Load(two.cfg.State); err != nil || id.Cluster != one.gossip.ClusterID() {
		t.Errorf("host2's identity on disk: %+v, %v", id, err)
	}
}

func TestJoinerWaitsAndSaysSo(t *testing.T) { virtual(t, testJoinerWaitsAndSaysSo) }

func testJoinerWaitsAndSaysSo(t *testing.T) {
	two := newHost(t, 2, t.TempDir(), 1, 2).run()
	time.Sleep(100 * time.Millisecond)
	p := two.Problems(two.replica.Snapshot())
	if len(p) != 1 || !strings.Contains(p[0].What, "waits for a cluster") || !strings.Contains(p[0].What, address(1).Addr().String()) {
		t.Errorf("problems: %v", p)
	}
}

// TestSeedThatLostItsStateJoins: the first host of the list comes back empty; it
// must not begin a second cluster beside the one it once began.
func TestSeedThatLostItsStateJoins(t *testing.T) { virtual(t, testSeedThatLostItsStateJoins) }

func testSeedThatLostItsStateJoins(t *testing.T) {
	one := newHost(t, 1, t.TempDir(), 1, 2).run()
	two := newHost(t, 2, t.TempDir(), 1, 2).run()
	eventually(t, "host2 joins", two.member)
	id := one.gossip.ClusterID()
	one.stop()
	again := newHost(t, 1, t.TempDir(), 1, 2).run()
	eventually(t, "host1 joins", again.member)
	if got := again.gossip.ClusterID(); got != id {
		t.Errorf("cluster %s, want %s", got, id)
	}
}

// TestInterruptedSeedResumes: the power fails after the ring is written and
// before the cluster's ID is.
func TestInterruptedSeedResumes(t *testing.T) { virtual(t, testInterruptedSeedResumes) }

func testInterruptedSeedResumes(t *testing.T) {
	dir := t.TempDir()
	one := newHost(t, 1, dir, 1, 2)
	if err := ipam.Seed(one.replica, one.Self()); err != nil {
		t.Fatal(err)
	}
	one.stop()
	again := newHost(t, 1, dir, 1, 2)
	if again.gossip.ClusterID() == "" || again.role != identity.Member {
		t.Errorf("role %v, cluster %q", again.role, again.gossip.ClusterID())
	}
}

// TestRestartIsTheSameHost: cluster, node and ring are there at once, alone.
func TestRestartIsTheSameHost(t *testing.T) { virtual(t, testRestartIsTheSameHost) }

func testRestartIsTheSameHost(t *testing.T) {
	dir := t.TempDir()
	one := newHost(t, 1, dir, 1, 2)
	one.run()
	eventually(t, "host1 begins a cluster", one.member)
	id, node := one.gossip.ClusterID(), one.id.Node
	one.stop()
	again := newHost(t, 1, dir, 1, 2)
	if again.id.Node != node || again.gossip.ClusterID() != id || !again.member() {
		t.Errorf("node %s cluster %s, want %s %s", again.id.Node, again.gossip.ClusterID(), node, id)
	}
	again.run()
}

func TestLeaveGivesEverythingAway(t *testing.T) { virtual(t, testLeaveGivesEverythingAway) }

func testLeaveGivesEverythingAway(t *testing.T) {
	one := newHost(t, 1, t.TempDir(), 1).run()
	two := newHost(t, 2, t.TempDir(), 1).run()
	eventually(t, "both know both", func() bool {
		return len(one.gossip.Alive()) == 1 && len(two.gossip.Alive()) == 1 && len(one.Nodes(one.replica.Snapshot())) == 2 && two.member()
	})
	if err := one.Leaver.giveAway(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if err := one.Leaver.farewell(t.Context()); err != nil {
		t.Fatal(err)
	}
	// All of this is on host2's disk now, not only on its way.
	snap := two.replica.Snapshot()
	if !snap.Ring().OwnsAll(two.Self(), clusterRange) {
		t.Error("host2 does not own all addresses")
	}
	for _, all := range []string{"0.0.0.0/0", "::/0"} {
		if n := snap.Ring().Counts(netip.MustParsePrefix(all))[one.Self()]; n != 0 {
			t.Errorf("host1 still owns %d numbers of %s", n, all)
		}
	}
	if !snap.Tombstone(cluster.Node{ID: one.Self()}.Key()) {
		t.Error("host2 still has host1's record")
	}
}

func TestHostByName(t *testing.T) { virtual(t, testHostByName) }

func testHostByName(t *testing.T) {
	one := newHost(t, 1, t.TempDir(), 1).run()
	eventually(t, "host1 begins a cluster", func() bool { return one.member() && len(one.Nodes(one.replica.Snapshot())) == 1 })
	for name, want := range map[string]string{"host1": string(one.Self()), one.id.Node: one.id.Node, "0123456789abcdef": "0123456789abcdef"} {
		if id, err := pickHost(one.Nodes(one.replica.Snapshot()), name); err != nil || string(id) != want {
			t.Errorf("%s: %s, %v", name, id, err)
		}
	}
	if _, err := pickHost(one.Nodes(one.replica.Snapshot()), "host9"); err == nil || !strings.Contains(err.Error(), "`grapevine nodes`") {
		t.Errorf("an unknown host: %v", err)
	}
}

// TestNoSecondCluster: a host whose identity has lost its cluster begins no other while
// its records say that there is one.
func TestNoSecondCluster(t *testing.T) {
	for _, commons := range []bool{false, true} {
		t.Run(fmt.Sprintf("commons %v", commons), func(t *testing.T) { virtual(t, func(t *testing.T) { testNoSecondCluster(t, commons) }) })
	}
}

func testNoSecondCluster(t *testing.T, commons bool) {
	dir := t.TempDir()
	one := newHost(t, 1, dir)
	if !commons {
		one.start()
	} else {
		one.run()
		eventually(t, "what is outside is the commons'", func() bool {
			return one.replica.Snapshot().Ring().Counts(netip.MustParsePrefix("0.0.0.0/0"))[ipam.Commons] > 0
		})
	}
	eventually(t, "host1 begins a cluster", one.member)
	if _, err := one.replica.Update(func(tx *replica.Tx) error { return tx.Put(cluster.Network{Name: "x"}) }); err != nil {
		t.Fatal(err)
	}
	one.stop()
	id := one.id
	id.Cluster = ""
	if err := id.Save(dir); err != nil {
		t.Fatal(err)
	}
	a := newMember(one.cfg)
	a.id = id
	for role, join := range map[identity.Role][]netip.AddrPort{identity.Seed: nil, identity.Joiner: {one.gossip.Addr(), one.gossip.Addr()}} {
		a.role, a.cfg.Join = role, join
		var err error
		if a.db, err = store.Open(filepath.Join(dir, stateFile)); err != nil {
			t.Fatal(err)
		}
		if a.replica, err = replica.Open(a.db, a.Self()); err != nil {
			t.Fatal(err)
		}
		err = a.Joiner.resumeSeed()
		if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, identity.File)) || !strings.Contains(err.Error(), "grapevine restore") || a.id.Cluster != "" {
			t.Errorf("%v: %v, cluster %q", role, err, a.id.Cluster)
		}
		a.db.Close()
	}
}

// TestKilledAsItJoined: a host that would seed had the records of a cluster and not yet its
// ID when it was killed. It waits for the others, whatever time that takes.
func TestKilledAsItJoined(t *testing.T) { virtual(t, testKilledAsItJoined) }

func testKilledAsItJoined(t *testing.T) {
	one := newHost(t, 1, t.TempDir(), 1, 2).run()
	dir := t.TempDir()
	two := newHost(t, 2, dir, 1, 2).run()
	eventually(t, "host2 joins", func() bool { return two.member() && two.replica.Settled() })
	two.stop()
	id := two.id
	id.Cluster = ""
	if err := id.Save(dir); err != nil {
		t.Fatal(err)
	}
	again := newHost(t, 2, dir, 2, 1)
	if again.role != identity.Joiner {
		t.Errorf("it is a %v", again.role)
	}
	again.run()
	eventually(t, "it is told the cluster", func() bool { return again.gossip.ClusterID() == one.gossip.ClusterID() })
}
