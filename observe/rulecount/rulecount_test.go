package rulecount

import (
	"context"
	"errors"
	"strings"
	"testing"

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
	if notes := strings.Join(got.Notes, "\n"); !strings.Contains(notes, "host old is not counted: its agent is older") || !strings.Contains(notes, "host gone is not counted: it could not be asked (no way)") || len(got.Notes) != 2 {
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
