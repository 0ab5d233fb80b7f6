package former

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/replica"
)

const (
	here  cluster.NodeID = "1000000000000001"
	there cluster.NodeID = "2000000000000002"
	third cluster.NodeID = "3000000000000003"
)

// machine is a host with its state file, on which one agent after the other runs.
type machine struct {
	self    cluster.NodeID
	db      *store.DB
	replica *replica.Replica
	keeper  *Keeper
	passes  chan struct{}
	end     func()

	mu   sync.Mutex
	call func(node string, body []byte) ([]byte, error) // nil: gossip does not pass
	asks int

	alive []string // set before anybody is asked
}

func newMachine(t *testing.T, self cluster.NodeID) *machine {
	m := &machine{self: self, passes: make(chan struct{}, 100)}
	var err error
	if m.db, err = store.Open(filepath.Join(t.TempDir(), "state.db")); err != nil {
		t.Fatal(err)
	}
	m.start(t)
	t.Cleanup(func() { m.end(); _ = m.db.Close() })
	return m
}

// start starts an agent, in the place of one that is just gone.
func (m *machine) start(t *testing.T) {
	t.Helper()
	if m.end != nil {
		if err := m.replica.Flush(t.Context()); err != nil { // which it does each second
			t.Fatal(err)
		}
		m.end()
	}
	k, err := Open(m.db, m.self)
	if err != nil {
		t.Fatal(err)
	}
	r, err := replica.Open(m.db, m.self, replica.Beside(k.Note))
	if err != nil {
		t.Fatal(err)
	}
	k.Follow(Config{
		Snapshot: r.Snapshot, Watch: r.Watch, Flush: r.Flush, Log: slog.New(slog.DiscardHandler),
		Placed: func(context.Context, uint64) error { return nil },
		Pass:   func(context.Context) error { m.passes <- struct{}{}; return nil },
		Alive:  func() []string { return m.alive },
		Call: func(_ context.Context, node, method string, body []byte) ([]byte, error) {
			m.mu.Lock()
			m.asks++
			call := m.call
			m.mu.Unlock()
			if call == nil || method != Method {
				return nil, gossip.ErrUnreachable
			}
			return call(node, body)
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = k.Run(ctx) }()
	m.replica, m.keeper, m.end = r, k, func() { cancel(); <-ended }
}

func (m *machine) put(t *testing.T, bodies ...cluster.Body) {
	t.Helper()
	if _, err := m.replica.Update(func(tx *replica.Tx) error {
		for _, b := range bodies {
			_ = tx.Put(b) // Update reports it
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) remove(t *testing.T, id string) {
	t.Helper()
	if _, err := m.replica.Update(func(tx *replica.Tx) error { tx.Delete(cluster.Endpoint{ID: id}.Key()); return nil }); err != nil {
		t.Fatal(err)
	}
}

// hear has a machine hear all that another one knows.
func (m *machine) hear(t *testing.T, from *machine) {
	t.Helper()
	for chunk := range from.replica.Missing(m.replica.Digest(), 1<<20) {
		if _, err := m.replica.Merge(chunk); err != nil {
			t.Fatal(err)
		}
	}
}

func (m *machine) dial(f func(node string, body []byte) ([]byte, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.call = f
}

func (m *machine) asked() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asks
}

// waits are the hosts that an endpoint waits for.
func (m *machine) waits(id string) []cluster.NodeID {
	return m.keeper.Waiting(m.replica.Snapshot())[id].Hosts
}

func (m *machine) want(t *testing.T, id string, hosts ...cluster.NodeID) {
	t.Helper()
	if got := m.waits(id); !slices.Equal(got, hosts) {
		t.Errorf("%s waits for %v, want %v", id, got, hosts)
	}
}

func (m *machine) eventually(t *testing.T, id string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); len(m.waits(id)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s still waits for %v", id, m.waits(id))
		}
	}
}

func node(id cluster.NodeID, enforces uint8) cluster.Node {
	return cluster.Node{ID: id, Name: "host " + string(id), Enforces: enforces}
}

func container(host cluster.NodeID, id, app, a string) cluster.Endpoint {
	e := labelled(id, app, a)
	e.Host, e.MAC = host, "02:42:00:00:00:01"
	return e
}

// TestKeeper: an endpoint with the address of another one waits for the host that has not heard, over the agent's end, and no longer
// than until that host has heard. One that is the same to policies does not wait.
func TestKeeper(t *testing.T) {
	a, b := newMachine(t, here), newMachine(t, there)
	a.put(t, node(here, 4), cluster.Network{Name: "blue", VNID: 5})
	b.put(t, node(there, 4))
	a.put(t, container(here, "web", "web", "10.77.0.9"), container(here, "app", "app", "10.77.0.8"))
	a.hear(t, b)
	b.hear(t, a)

	a.remove(t, "web")
	a.put(t, container(here, "bad", "bad", "10.77.0.9"))
	a.remove(t, "app")
	a.put(t, container(here, "app2", "app", "10.77.0.8"))
	a.want(t, "bad") // there is no policy
	a.put(t, cluster.Network{Name: "blue", VNID: 5, Labelled: true})
	a.want(t, "bad", there)
	a.want(t, "app2")
	a.start(t)
	a.want(t, "bad", there)

	// It answers, and has not heard.
	a.dial(func(_ string, body []byte) ([]byte, error) {
		return b.keeper.Answer(context.Background(), string(here), body)
	})
	for n, end := a.asked(), time.Now().Add(20*time.Second); a.asked() < n+2; time.Sleep(10 * time.Millisecond) {
		if a.want(t, "bad", there); time.Now().After(end) {
			t.Fatal("it is not asked again")
		}
	}
	b.hear(t, a)
	a.eventually(t, "bad")

	// The answer is for all that was written before, and stays over the agent's end.
	a.dial(nil)
	a.start(t)
	a.want(t, "bad")
	asks := a.asked()
	a.put(t, container(here, "web", "web", "10.77.0.7"))
	a.want(t, "web")
	if a.asked() != asks {
		t.Errorf("asked for nothing")
	}
}

// TestFirstRule: who would have to hear is asked before there is any rule, so that a first one keeps a container from nobody who has.
func TestFirstRule(t *testing.T) {
	a, b := newMachine(t, here), newMachine(t, there)
	a.put(t, node(here, 4), cluster.Network{Name: "blue", VNID: 5})
	b.put(t, node(there, 0)) // where there are no policies it need not say yet that it enforces any
	block := netip.MustParsePrefix("10.77.0.0/28")
	b.put(t, cluster.Claim{Block: block, Owner: here})
	a.hear(t, b)
	a.dial(func(_ string, body []byte) ([]byte, error) {
		return b.keeper.Answer(context.Background(), string(here), body)
	})
	a.put(t, container(here, "web", "web", "10.77.0.9")) // anybody may have had it
	a.want(t, "web")
	for end := time.Now().Add(20 * time.Second); a.asked() == 0 || !a.quiet(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the other host is not asked what it has heard before there is a rule")
		}
	}
	a.dial(nil)
	b.put(t, node(there, 4))
	a.hear(t, b)
	a.put(t, cluster.Network{Name: "blue", VNID: 5, Labelled: true})
	a.want(t, "web")

	// A container that comes now waits.
	a.remove(t, "web")
	a.put(t, container(here, "bad", "bad", "10.77.0.9"))
	a.want(t, "bad", there)
}

// quiet reports whether a machine asks nobody, nor is to.
func (m *machine) quiet() bool {
	m.keeper.mu.Lock()
	defer m.keeper.mu.Unlock()
	return len(m.keeper.asked) == 0
}

// TestAskedInTurn: while nothing waits for them hosts are asked one after the other, and one that does not answer seldom; with the first
// rule all are asked at once.
func TestAskedInTurn(t *testing.T) {
	a := newMachine(t, here)
	a.end() // it asks nobody by itself
	a.put(t, node(here, 4), cluster.Network{Name: "blue", VNID: 5})
	a.hosts(t, 100)
	a.put(t, container(here, "web", "web", "10.78.0.9"))
	a.removed(t, 20)
	snap := a.replica.Snapshot()
	if w := a.keeper.Waiting(snap); len(w) > 0 {
		t.Errorf("without a rule it waits: %v", w)
	}
	due := func(at time.Time) (n int) {
		for {
			host, _, _ := a.keeper.due(at)
			if host == "" {
				return n
			}
			n++
		}
	}
	now := time.Now()
	if n := due(now); n > 2 {
		t.Errorf("%d of 100 hosts are asked at once", n)
	}
	if n := due(now.Add(10 * turns)); n < 8 || n > 11 {
		t.Errorf("%d hosts are asked in 10 turns", n)
	}
	a.keeper.ask(t.Context(), "3000000000000000", marks{}) // it does not answer
	if next := a.keeper.asked["3000000000000000"].next; time.Until(next) < idle/2 {
		t.Errorf("who did not answer is asked again in %v", time.Until(next))
	}
	a.put(t, cluster.Network{Name: "blue", VNID: 5, Labelled: true})
	if w := a.keeper.Waiting(a.replica.Snapshot()); len(w["web"].Hosts) != 100 {
		t.Errorf("with a rule it waits for %d of 100 hosts", len(w["web"].Hosts))
	}
	asking := 0
	for _, one := range a.keeper.asked {
		if one.asking {
			asking++
		}
	}
	if n := due(time.Now()); n+asking != 100 {
		t.Errorf("with a rule %d more hosts are asked, beside %d", n, asking)
	}
}

// TestGiven: who had addresses goes with them to the host that gets them.
func TestGiven(t *testing.T) {
	a, b := newMachine(t, here), newMachine(t, there)
	a.put(t, node(here, 4), cluster.Network{Name: "blue", VNID: 5, Labelled: true})
	b.put(t, node(there, 4))
	a.put(t, container(here, "web", "web", "10.77.0.9"))
	a.hear(t, b)
	b.hear(t, a)
	a.remove(t, "web")
	given, err := a.keeper.Given([]netip.Prefix{single("10.77.0.9")})
	if err != nil || given == nil {
		t.Fatalf("given %q, %v", given, err)
	}
	if err := b.keeper.Take(given); err != nil {
		t.Fatal(err)
	}
	b.put(t, container(there, "bad", "bad", "10.77.0.9"))
	b.want(t, "bad", here)
	b.start(t)
	b.want(t, "bad", here)
	if err := b.keeper.Take([]byte("x")); err == nil {
		t.Error("what cannot be read is taken")
	}
	b.dial(func(_ string, body []byte) ([]byte, error) {
		return a.keeper.Answer(context.Background(), string(there), body)
	})
	b.eventually(t, "bad")
}

// only has a machine hear one record of another one, and not what was written before: as it comes with an answer, or out of order.
func (m *machine) only(t *testing.T, from *machine, k cluster.Key) {
	t.Helper()
	rec, there := from.replica.Snapshot().Record(k)
	if !there {
		t.Fatalf("no %v", k)
	}
	if _, err := m.replica.Merge(cluster.Encode([]cluster.Record{rec})); err != nil {
		t.Fatal(err)
	}
}

// TestGivenInSilence: of addresses that come by a claim alone, since the answer was lost, it is not known who had them: a container waits
// until hosts have heard who gave them, up to the claim. One that is there already does not wait, also where this host claims them anew.
func TestGivenInSilence(t *testing.T) {
	a, b, c := newMachine(t, here), newMachine(t, there), newMachine(t, third)
	a.put(t, node(here, 4), cluster.Network{Name: "blue", VNID: 5, Labelled: true})
	b.put(t, node(there, 4))
	c.put(t, node(third, 4))
	a.put(t, container(here, "web", "web", "10.77.0.9"))
	for _, m := range []*machine{a, b, c} {
		for _, from := range []*machine{a, b, c} {
			m.hear(t, from)
		}
	}
	block := netip.MustParsePrefix("10.77.0.0/28")
	a.remove(t, "web")
	a.put(t, cluster.Claim{Block: block, Owner: there})
	b.only(t, a, cluster.Claim{Block: block}.Key())
	b.put(t, container(there, "bad", "bad", "10.77.0.9"))
	b.want(t, "bad", here, third)
	b.start(t)
	b.want(t, "bad", here, third)

	// Another one of the block does as well, also once this host has claimed the block itself.
	b.put(t, cluster.Claim{Block: block, Owner: there})
	b.put(t, container(there, "bad2", "bad", "10.77.0.8"))
	b.want(t, "bad2", here, third)
	b.put(t, container(there, "bad", "worse", "10.77.0.9"))
	b.want(t, "bad", here, third)

	b.dial(func(node string, body []byte) ([]byte, error) {
		to := a
		if node == string(third) {
			to = c
		}
		return to.keeper.Answer(context.Background(), string(there), body)
	})
	for end := time.Now().Add(20 * time.Second); !slices.Equal(b.waits("bad"), []cluster.NodeID{third}); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it waits for %v, and not for the one that has not heard alone", b.waits("bad"))
		}
	}
	c.hear(t, a)
	b.eventually(t, "bad")
	b.eventually(t, "bad2")

	// What all have heard is nothing to wait for.
	b.dial(nil)
	b.put(t, container(there, "bad3", "bad", "10.77.0.7"))
	b.want(t, "bad3")
}

// TestGoneForGood: of a host that was forgotten nobody waits for what nobody has.
func TestGoneForGood(t *testing.T) {
	a, b, c := newMachine(t, here), newMachine(t, there), newMachine(t, third)
	a.put(t, node(here, 4))
	b.put(t, node(there, 4), cluster.Network{Name: "blue", VNID: 5, Labelled: true})
	b.hear(t, a)
	c.put(t, node(third, 4))
	b.hear(t, c)
	c.hear(t, b)
	a.put(t, cluster.Network{Name: "lost", VNID: 6}) // of which nobody hears
	block := netip.MustParsePrefix("10.77.0.0/28")
	a.put(t, cluster.Claim{Block: block, Owner: there})
	b.only(t, a, cluster.Claim{Block: block}.Key())
	b.put(t, container(there, "new", "new", "10.77.0.9"))
	b.want(t, "new", here, third)
	b.dial(func(node string, body []byte) ([]byte, error) {
		if node != string(third) {
			return nil, gossip.ErrUnreachable
		}
		return c.keeper.Answer(context.Background(), string(there), body)
	})
	for n, end := b.asked(), time.Now().Add(20*time.Second); b.asked() < n+3 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		b.want(t, "new", here, third)
	}
	if _, err := b.replica.Update(func(tx *replica.Tx) error { tx.Delete(cluster.Node{ID: here}.Key()); return nil }); err != nil {
		t.Fatal(err)
	}
	b.eventually(t, "new")
}

// TestRelayed: a host that this one does not reach is asked by way of another one, which reaches it; who answers for itself is not
// taken for it.
func TestRelayed(t *testing.T) {
	a, b, c := newMachine(t, here), newMachine(t, there), newMachine(t, third)
	a.alive = []string{string(there), string(third)}
	a.put(t, node(here, 4), cluster.Network{Name: "blue", VNID: 5, Labelled: true})
	b.put(t, node(there, 4))
	c.put(t, node(third, 0))
	a.hear(t, b)
	a.hear(t, c)
	older := true
	a.dial(func(node string, body []byte) ([]byte, error) {
		if node != string(third) {
			return nil, gossip.ErrUnreachable
		}
		if older {
			older = false
			return cbor.Marshal(answer{Marks: marks{here: 1000}})
		}
		return c.keeper.Answer(context.Background(), string(here), body)
	})
	c.dial(func(node string, body []byte) ([]byte, error) {
		if node != string(there) {
			return nil, gossip.ErrUnreachable
		}
		return b.keeper.Answer(context.Background(), string(third), body)
	})
	a.put(t, container(here, "web", "web", "10.77.0.9"))
	b.hear(t, a)
	a.remove(t, "web")
	a.put(t, container(here, "bad", "bad", "10.77.0.9"))
	a.want(t, "bad", there)
	for n, end := c.asked(), time.Now().Add(20*time.Second); c.asked() < n+2; time.Sleep(10 * time.Millisecond) {
		if a.want(t, "bad", there); time.Now().After(end) {
			t.Fatal("it is not asked by way of another")
		}
	}
	c.hear(t, a)
	b.hear(t, c)
	a.eventually(t, "bad")
}

// TestTogether: the disk is written by whoever notes, takes and saves at the same time, and nobody waits for the other for ever.
func TestTogether(t *testing.T) {
	a := newMachine(t, here)
	a.put(t, node(here, 4), cluster.Network{Name: "blue", VNID: 5, Labelled: true})
	given, err := cbor.Marshal([]Entry{{Block: single("10.77.0.9"), By: there, Counter: 3, Any: true}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	go func() {
		var err error
		for range 100 {
			err = errors.Join(err, a.keeper.Take(given))
		}
		ended <- err
	}()
	go func() {
		for i := range 100 {
			a.keeper.mu.Lock()
			a.keeper.heard[there], a.keeper.unsaved[there] = marks{here: uint64(i)}, true
			a.keeper.mu.Unlock()
			a.keeper.save(false)
		}
		ended <- nil
	}()
	for range 100 {
		a.put(t, container(here, "web", "web", "10.77.0.9"))
		a.remove(t, "web")
	}
	for range 2 {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("they wait for each other")
		}
	}
}

// TestNotAsked: of a host that enforces nothing nothing is asked; one of an older agent that answers has heard after a while.
func TestNotAsked(t *testing.T) {
	a, b := newMachine(t, here), newMachine(t, there)
	a.put(t, node(here, 4), cluster.Network{Name: "blue", VNID: 5, Labelled: true})
	b.put(t, node(there, 0))
	a.hear(t, b)
	a.put(t, container(here, "web", "web", "10.77.0.9"))
	a.remove(t, "web")
	a.put(t, container(here, "bad", "bad", "10.77.0.9"))
	a.want(t, "bad")
	if n := a.asked(); n != 0 {
		t.Errorf("asked %d times", n)
	}
	b.put(t, node(there, 4))
	a.hear(t, b)
	a.want(t, "bad", there)
	a.dial(func(node string, _ []byte) ([]byte, error) {
		return nil, &gossip.RemoteError{Node: node, Method: Method, Text: `unknown method "former.heard": is this host's agent older?`}
	})
	began := time.Now()
	for end := began.Add(10 * time.Second); a.asked() == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	time.Sleep(time.Second)
	a.put(t, container(here, "web2", "web", "10.77.0.10"))
	a.remove(t, "web2")
	later := time.Now()
	a.put(t, container(here, "bad2", "bad", "10.77.0.10"))
	a.want(t, "bad2", there)
	a.eventually(t, "bad")
	if d := time.Since(began); d < grace {
		t.Errorf("an older agent has heard after %s", d)
	}
	a.eventually(t, "bad2")
	if d := time.Since(later); d < grace {
		t.Errorf("an older agent has heard what was written later after %s", d)
	}
}

// TestEgress: the host that holds an egress which asks for labels goes by who a container is, be it by none of the rules.
func TestEgress(t *testing.T) {
	a, b, c := newMachine(t, here), newMachine(t, there), newMachine(t, third)
	a.put(t, node(here, 4), cluster.Network{Name: "blue", VNID: 5})
	b.put(t, node(there, 0))
	c.put(t, node(third, 4))
	a.hear(t, b)
	a.hear(t, c)
	a.put(t, container(here, "web", "web", "10.77.0.9"))
	a.remove(t, "web")
	a.put(t, container(here, "bad", "bad", "10.77.0.9"))
	a.put(t, cluster.EgressHolder{Egress: "smtp", Host: there})
	a.want(t, "bad")
	a.put(t, cluster.LabelEgress{Name: "smtp", Networks: []string{"blue"}, Addrs: []netip.Addr{addr("192.0.2.26")}, Labels: []string{"app=web"}})
	a.want(t, "bad", there)
	a.put(t, cluster.Network{Name: "blue", VNID: 5, Labelled: true})
	a.want(t, "bad", there, third)
}

// TestProblems: one that lasts is named.
func TestProblems(t *testing.T) {
	a := newMachine(t, here)
	a.put(t, node(here, 4), cluster.Network{Name: "blue", VNID: 5, Labelled: true})
	b := newMachine(t, there)
	b.put(t, node(there, 4))
	a.hear(t, b)
	a.put(t, container(here, "web", "web", "10.77.0.9"))
	a.remove(t, "web")
	a.put(t, container(here, "bad", "bad", "10.77.0.9"))
	a.want(t, "bad", there)
	if list := a.keeper.Problems(a.replica.Snapshot()); list != nil {
		t.Errorf("at once: %v", list)
	}
	b.put(t, container(there, "db", "db", "10.77.1.2"))
	a.hear(t, b)
	for _, pair := range [][2]string{{"10.77.0.9", "10.77.1.2"}, {"10.77.1.2", "10.77.0.9"}} {
		if n := a.keeper.Notes(a.replica.Snapshot(), addr(pair[0]), addr(pair[1])); len(n) != 1 || !strings.Contains(n[0], "(10.77.0.9)") {
			t.Errorf("%v: %q", pair, n)
		}
	}
	if n := a.keeper.Notes(a.replica.Snapshot(), addr("10.77.0.9"), addr("192.0.2.1")); n != nil {
		t.Errorf("to the outside: %q", n)
	}
	a.keeper.mu.Lock()
	a.keeper.since["bad"] = time.Now().Add(-lasting)
	a.keeper.mu.Unlock()
	list := a.keeper.Problems(a.replica.Snapshot())
	if len(list) != 1 || !strings.Contains(list[0].What, "10.77.0.9") || !strings.Contains(list[0].What, "host "+string(there)) {
		t.Errorf("later: %v", list)
	}
}

// TestManyHosts: while many are just being asked, an endpoint is kept from all of them by one word.
func TestManyHosts(t *testing.T) {
	a := newMachine(t, here)
	a.dial(func(string, []byte) ([]byte, error) {
		time.Sleep(100 * time.Millisecond)
		return nil, errors.New("busy")
	})
	a.put(t, node(here, 4), cluster.Network{Name: "blue", VNID: 5, Labelled: true})
	for i := range many + 1 {
		id := cluster.NodeID("30000000000000" + string(rune('a'+i%6)) + string(rune('0'+i/6)))
		s := cluster.New(id)
		rec, _, err := s.Put(node(id, 4))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.replica.Merge(cluster.Encode([]cluster.Record{rec})); err != nil {
			t.Fatal(err)
		}
	}
	a.put(t, container(here, "web", "web", "10.77.0.9"))
	a.remove(t, "web")
	a.put(t, container(here, "bad", "bad", "10.77.0.9"))
	if w := a.keeper.Waiting(a.replica.Snapshot())["bad"]; !w.All || len(w.Hosts) != many+1 {
		t.Errorf("at first: %+v", w)
	}
	<-a.passes
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		w := a.keeper.Waiting(a.replica.Snapshot())["bad"]
		if !w.All && len(w.Hosts) == many+1 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("once all were asked: %+v", w)
		}
	}
	if h := a.keeper.Unheard(a.replica.Snapshot())["bad"]; len(h) != many+1 {
		t.Errorf("unheard %v", h)
	}
}
