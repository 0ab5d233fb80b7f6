package agent

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/ipam"
	"github.com/grapevine-net/grapevine/membership/identity"
	"github.com/grapevine-net/grapevine/overlay"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
	"github.com/grapevine-net/grapevine/replica"
)

var (
	testKey = [][]byte{make([]byte, 32)}
	// clusterRange is what hosts share; what is outside is the commons' sooner or later.
	clusterRange = netip.MustParsePrefix("10.128.0.0/14")
)

// TestMain has more tests run at once than there are processors: they wait most of the time.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// labs is the third byte of the loopback addresses of each test's hosts.
var labs = struct {
	sync.Mutex
	of map[string]byte
}{of: map[string]byte{}}

// address is where host n of a test gossips.
func address(t *testing.T, n int) netip.AddrPort {
	name, _, _ := strings.Cut(t.Name(), "/")
	labs.Lock()
	defer labs.Unlock()
	if labs.of[name] == 0 {
		labs.of[name] = byte(100 + len(labs.of))
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, labs.of[name], byte(n)}), 17946)
}

// host is an agent without switch and Docker, which gossips on a loopback address.
type host struct {
	*Agent
	t    *testing.T
	stop func()
}

// newHost opens host n with state in dir; join lists other hosts by their n.
func newHost(t *testing.T, n int, dir string, join ...int) *host {
	t.Helper()
	at := func(n int) netip.AddrPort { return address(t, n) }
	a := &Agent{
		cfg: config.Config{
			State: dir, Name: fmt.Sprintf("host%d", n), Keys: testKey, Bind: at(n).Addr(), Port: at(n).Port(),
			CIDR4: clusterRange, PrefixLen: 22, VXLANPort: 4789,
		},
		log: slog.New(slog.DiscardHandler), underlay: link.Underlay{Addr: at(n).Addr(), MTU: 1500},
		started: time.Now(),
	}
	for _, j := range join {
		a.cfg.Join = append(a.cfg.Join, at(j))
	}
	var err error
	if a.id, err = identity.Load(dir); err != nil {
		t.Fatal(err)
	}
	a.role = identity.Decide(a.id, []netip.Addr{at(n).Addr()}, a.cfg.Join)
	if a.ring.Keyring, err = identity.LoadKeyring(dir, testKey); err != nil {
		t.Fatal(err)
	}
	if a.db, err = store.Open(filepath.Join(dir, stateFile)); err != nil {
		t.Fatal(err)
	}
	if a.replica, err = replica.Open(a.db, a.self(), replica.Signed(a.id.Private()), replica.Judged(a.mayForget, a.promisedAway), replica.Gated(a.gate)); err != nil {
		t.Fatal(err)
	}
	for _, open := range []func() error{a.behind, a.resumeSeed, a.openGossip, a.openIPAM} {
		if err := open(); err != nil {
			t.Fatal(err)
		}
	}
	bridge := &ovs.Bridge{Datapath: ovs.Kernel}
	a.vswitch = &vswitch{bridge: bridge}
	a.vswitch.fast = a.vswitch.newFastPath(4789, a.underlay, netip.Addr{})
	a.vswitch.overlay, err = overlay.New(overlay.Config{Bridge: bridge, Tunnel: overlay.KernelTunnel{}, Mode: pipeline.Metadata}, a.replica)
	if err != nil {
		t.Fatal(err)
	}
	return &host{Agent: a, t: t}
}

// run starts the host's tasks; they end with the test, or by stop.
func (h *host) run() *host { return h.start(h.alloc.Run) }

// start runs what run does, but for the allocator, which asks for shares.
func (h *host) start(more ...func(context.Context) error) *host {
	ctx, cancel := context.WithCancel(h.t.Context())
	tasks, ctx := errgroup.WithContext(ctx)
	for _, f := range append(more, h.gossip.Run, h.replica.Run, h.broadcast, h.membership, h.catchUpKeys, h.proveRestored, h.proveMoved, h.bury) {
		tasks.Go(func() error { return f(ctx) })
	}
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
		if err := h.db.Close(); err != nil {
			h.t.Error(err)
		}
	}
	h.t.Cleanup(h.stop)
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
func (h *host) member() bool {
	return h.gossip.ClusterID() != "" && h.replica.Settled() && h.replica.Snapshot().Ring().Len() > 0
}

func TestSeedAndJoiner(t *testing.T) {
	t.Parallel()
	one := newHost(t, 1, t.TempDir(), 1).run()
	eventually(t, "host1 begins a cluster", one.member)
	if !one.replica.Snapshot().Ring().OwnsAll(one.self(), clusterRange) {
		t.Error("the seed does not own all addresses")
	}
	two := newHost(t, 2, t.TempDir(), 1, 2).run()
	eventually(t, "host2 joins", two.member)
	if a, b := one.gossip.ClusterID(), two.gossip.ClusterID(); a != b {
		t.Errorf("two clusters: %s, %s", a, b)
	}
	eventually(t, "both know both", func() bool {
		return len(one.nodes(one.replica.Snapshot())) == 2 && len(two.nodes(two.replica.Snapshot())) == 2
	})
	if p := two.problems(t.Context(), two.replica.Snapshot(), nil, unlinked{}); len(p) != 0 {
		t.Errorf("problems of a whole cluster: %v", p)
	}
	if id, err := identity.Load(two.cfg.State); err != nil || id.Cluster != one.gossip.ClusterID() {
		t.Errorf("host2's identity on disk: %+v, %v", id, err)
	}
}

func TestJoinerWaitsAndSaysSo(t *testing.T) {
	two := newHost(t, 2, t.TempDir(), 1, 2).run()
	time.Sleep(100 * time.Millisecond)
	p := two.problems(t.Context(), two.replica.Snapshot(), nil, unlinked{})
	if len(p) != 1 || !strings.Contains(p[0].What, "waits for a cluster") || !strings.Contains(p[0].What, address(t, 1).Addr().String()) {
		t.Errorf("problems: %v", p)
	}
}

// TestSeedThatLostItsStateJoins: the first host of the list comes back empty; it
// must not begin a second cluster beside the one it once began.
func TestSeedThatLostItsStateJoins(t *testing.T) {
	t.Parallel()
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
func TestInterruptedSeedResumes(t *testing.T) {
	dir := t.TempDir()
	one := newHost(t, 1, dir, 1, 2)
	if err := ipam.Seed(one.replica, one.self()); err != nil {
		t.Fatal(err)
	}
	one.gossip.Close()
	one.db.Close()
	again := newHost(t, 1, dir, 1, 2)
	if again.gossip.ClusterID() == "" || again.role != identity.Member {
		t.Errorf("role %v, cluster %q", again.role, again.gossip.ClusterID())
	}
	again.gossip.Close()
	again.db.Close()
}

// TestRestartIsTheSameHost: cluster, node and ring are there at once, alone.
func TestRestartIsTheSameHost(t *testing.T) {
	t.Parallel()
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

func TestLeaveGivesEverythingAway(t *testing.T) {
	t.Parallel()
	one := newHost(t, 1, t.TempDir(), 1).run()
	two := newHost(t, 2, t.TempDir(), 1).run()
	eventually(t, "both know both", func() bool {
		return len(one.gossip.Alive()) == 1 && len(two.gossip.Alive()) == 1 && len(one.nodes(one.replica.Snapshot())) == 2 && two.member()
	})
	if err := one.giveAway(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if err := one.farewell(t.Context()); err != nil {
		t.Fatal(err)
	}
	// All of this is on host2's disk now, not only on its way.
	snap := two.replica.Snapshot()
	if !snap.Ring().OwnsAll(two.self(), clusterRange) {
		t.Error("host2 does not own all addresses")
	}
	for _, all := range []string{"0.0.0.0/0", "::/0"} {
		if n := snap.Ring().Counts(netip.MustParsePrefix(all))[one.self()]; n != 0 {
			t.Errorf("host1 still owns %d numbers of %s", n, all)
		}
	}
	if !snap.Tombstone(cluster.Node{ID: one.self()}.Key()) {
		t.Error("host2 still has host1's record")
	}
}

func TestHostByName(t *testing.T) {
	t.Parallel()
	one := newHost(t, 1, t.TempDir(), 1).run()
	eventually(t, "host1 begins a cluster", one.member)
	for name, want := range map[string]string{"host1": string(one.self()), one.id.Node: one.id.Node, "0123456789abcdef": "0123456789abcdef"} {
		if id, err := pickHost(one.nodes(one.replica.Snapshot()), name); err != nil || string(id) != want {
			t.Errorf("%s: %s, %v", name, id, err)
		}
	}
	if _, err := pickHost(one.nodes(one.replica.Snapshot()), "host9"); err == nil || !strings.Contains(err.Error(), "`grapevine nodes`") {
		t.Errorf("an unknown host: %v", err)
	}
}

// TestNoSecondCluster: a host whose identity has lost its cluster begins no other while
// its records say that there is one.
func TestNoSecondCluster(t *testing.T) {
	dir := t.TempDir()
	one := newHost(t, 1, dir).run()
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
	a := &Agent{cfg: one.cfg, id: id, log: one.log}
	for role, join := range map[identity.Role][]netip.AddrPort{identity.Seed: nil, identity.Joiner: {one.gossip.Addr(), one.gossip.Addr()}} {
		a.role, a.cfg.Join = role, join
		var err error
		if a.db, err = store.Open(filepath.Join(dir, stateFile)); err != nil {
			t.Fatal(err)
		}
		if a.replica, err = replica.Open(a.db, a.self()); err != nil {
			t.Fatal(err)
		}
		err = a.resumeSeed()
		if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, identity.File)) || !strings.Contains(err.Error(), "grapevine restore") || a.id.Cluster != "" {
			t.Errorf("%v: %v, cluster %q", role, err, a.id.Cluster)
		}
		a.db.Close()
	}
}

// TestKilledAsItJoined: a host that would seed had the records of a cluster and not yet its
// ID when it was killed. It waits for the others, whatever time that takes.
func TestKilledAsItJoined(t *testing.T) {
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
