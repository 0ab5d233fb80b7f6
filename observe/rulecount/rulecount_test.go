package rulecount

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/gossip"
)

// TestCounts: what hosts say of one rule is added up, containers stay apart, and who could not be asked is named.
func TestCounts(t *testing.T) {
	rule := func(packets uint64) api.RuleCount {
		return api.RuleCount{Rule: "blue/db ingress[0]", Action: "Accept", Packets: packets, Bytes: 100 * packets, Connections: 1}
	}
	rest := func(name string) api.RuleCount {
		return api.RuleCount{Action: "Deny", Direction: "ingress", Network: "blue", Container: name, Policies: []string{"blue/db"}, Packets: 1}
	}
	desk := func(id cluster.NodeID, rows ...api.RuleCount) *Desk {
		return New(Config{Self: id, Snapshot: func() *cluster.Snapshot { return cluster.New(id).Snapshot() }, Count: func(context.Context) ([]api.RuleCount, error) { return rows, nil }})
	}
	others := map[string]*Desk{"b": desk("b", rule(3), rule(2), rest("db2"))} // with ports by name a rule has several rows
	a := desk("a", rule(7), rest("db1"))
	a.cfg.Alive = func() []string { return []string{"b", "old", "gone"} }
	a.cfg.Call = func(ctx context.Context, node, method string, body []byte) ([]byte, error) {
		if d, ok := others[node]; ok {
			return d.Methods()[method](ctx, "a", body)
		}
		if node == "old" {
			return nil, &gossip.RemoteError{Text: "unknown method " + method}
		}
		return nil, errors.New("no way")
	}
	got, err := a.Counts(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	sum := rule(12)
	sum.Connections, sum.Hosts = 3, 2
	one, two := rest("db1"), rest("db2")
	one.Hosts, two.Hosts = 1, 1
	if d := cmp.Diff([]api.RuleCount{one, two, sum}, got.Rules); d != "" {
		t.Error(d)
	}
	if notes := strings.Join(got.Notes, "\n"); !strings.Contains(notes, "host old is not counted: its agent is older") || !strings.Contains(notes, "host gone is not counted: its agent could not be asked (no way)") || len(got.Notes) != 2 {
		t.Errorf("%q", got.Notes)
	}
	if !one.Of("blue/db") || !sum.Of("blue/db") || sum.Of("blue/d") || two.Of("blue/db2") {
		t.Error("rules are of other policies")
	}
	if got, err := a.Counts(t.Context(), false); err != nil || len(got.Rules) != 2 || got.Rules[1].Packets != 7 || len(got.Notes) != 0 {
		t.Errorf("of this host alone: %+v, %v", got, err)
	}
}

// TestMost: an answer is bounded, whoever asks, and leaves out what counted least.
func TestMost(t *testing.T) {
	a := answer{Rows: []api.RuleCount{{Rule: "a", Packets: 1}, {Rule: "b", Packets: 3}, {Rule: "c", Packets: 2}}}
	if a.most(2); a.Left != 1 || a.Rows[0].Rule != "b" || a.Rows[1].Rule != "c" {
		t.Errorf("%+v", a)
	}
	if a.most(-1); len(a.Rows) != 0 || a.Left != 3 {
		t.Errorf("%+v", a)
	}
}

// TestOnce: however many ask at once, the switch is asked by one at a time, and once while the answer is fresh. What failed
// is asked for again.
func TestOnce(t *testing.T) {
	var mu sync.Mutex
	asked, at, most := 0, 0, 0
	fails := true
	d := New(Config{Self: "a", Snapshot: func() *cluster.Snapshot { return cluster.New("a").Snapshot() }, Alive: func() []string { return nil },
		Count: func(context.Context) ([]api.RuleCount, error) {
			mu.Lock()
			asked++
			at++
			most = max(most, at)
			mu.Unlock()
			runtime.Gosched()
			mu.Lock()
			defer mu.Unlock()
			at--
			if fails {
				return nil, errors.New("the switch does not answer")
			}
			return []api.RuleCount{{Rule: "blue/db ingress[0]"}}, nil
		}})
	now := time.Unix(1000, 0)
	d.rows.now, d.all.now = func() time.Time { return now }, func() time.Time { return now }
	ask := func() {
		var wait sync.WaitGroup
		for i := range 40 {
			wait.Go(func() { _, _ = d.Counts(t.Context(), i%2 == 0) })
		}
		wait.Wait()
	}
	if ask(); asked < 20 || most != 1 { // all is told though a host, this one, says nothing
		t.Errorf("the switch that fails was asked %d times, up to %d at once", asked, most)
	}
	fails, asked, now = false, 0, now.Add(fresh)
	ask()
	if asked != 1 || most != 1 {
		t.Errorf("the switch was asked %d times, up to %d at once", asked, most)
	}
	now = now.Add(fresh)
	ask()
	if asked != 2 {
		t.Errorf("later it was asked %d times in all", asked)
	}
	ctx, cancel := context.WithCancel(t.Context())
	d.rows.turn <- struct{}{}
	cancel()
	if _, err := d.Counts(ctx, false); !errors.Is(err, context.Canceled) {
		t.Errorf("who waits no longer: %v", err)
	}
}
