package counts

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/observe/rulecount"
	"github.com/grapevine-net/grapevine/overlay"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
	"github.com/grapevine-net/grapevine/policy/edit"
	"github.com/grapevine-net/grapevine/replica/replicatest"
)

const (
	self = cluster.NodeID("00000000000000aa")
	head = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n"
	db   = head + "metadata: {name: db, namespace: blue}\nspec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 5432}]}]}\n"
	soon = head + "metadata: {name: soon, namespace: blue, annotations: {grapevine.io/mode: try}}\nspec: {podSelector: {matchLabels: {app: web}}}\n"
)

// office is a host with the policy db, of which the switch has counted.
type office struct {
	Desk
	switched overlay.RuleCounts
	broken   error
}

func newOffice(t *testing.T) *office {
	t.Helper()
	r := replicatest.New(t, self,
		cluster.Node{ID: self, Name: "host1", Enforces: cluster.EnforcesV1}, cluster.Network{Name: "blue", VNID: 1},
		cluster.Endpoint{ID: "e1", Network: "blue", Host: self, Name: "web", Addrs: []netip.Addr{netip.MustParseAddr("10.128.0.2")}, Labels: map[string]string{"app": "web"}, Labelled: true},
		cluster.Endpoint{ID: "e2", Network: "blue", Host: self, Name: "db", Addrs: []netip.Addr{netip.MustParseAddr("10.128.0.3")}, Labels: map[string]string{"app": "db"}, Labelled: true},
	)
	people := edit.Desk{
		Self: self, Name: "host1", Replica: r, Published: func(string) bool { return true },
		Enforced: func(context.Context, uint64) error { return nil }, Lacks: func() string { return "" },
		Traffic: func(context.Context, bool) (api.Traffic, error) { return api.Traffic{}, nil },
		Told:    nil, Full: nil,
	}
	if _, err := people.Apply(t.Context(), api.ApplyRequest{Text: db}); err != nil {
		t.Fatal(err)
	}
	o := &office{}
	o.Desk = Desk{Config{
		Self: self, Snapshot: r.Snapshot, Desk: func() edit.Desk { return people },
		Switch: func(context.Context) (overlay.RuleCounts, error) { return o.switched, o.broken },
		Tried: func(func(rule, version string) bool) ([]api.RuleCount, error) {
			return nil, errors.New("nothing is tried")
		},
	}}
	o.Rules = rulecount.New(rulecount.Config{Self: self, Snapshot: r.Snapshot, Alive: func() []string { return nil }, Count: o.Here})
	o.switched = overlay.RuleCounts{
		Rules: []overlay.RuleCount{{Label: "blue/db ingress[0]", RuleCount: pipeline.RuleCount{Connections: 2, Passed: pipeline.Count{Packets: 9, Bytes: 900}}}},
		Unmatched: []overlay.UnmatchedCount{
			{Endpoint: "e2", Count: pipeline.Count{Packets: 3, Bytes: 180}},
			{Endpoint: "e1", Count: pipeline.Count{Packets: 5, Bytes: 300}}, // no policy isolates it: what no rule matches passes
		},
	}
	return o
}

// TestHere: what the switch has counted is said of rules, and what none matched of the policies that isolate the container; of one that
// none isolates nothing was denied.
func TestHere(t *testing.T) {
	o := newOffice(t)
	rows, err := o.Here(t.Context())
	if err != nil || len(rows) != 2 {
		t.Fatalf("%+v, %v", rows, err)
	}
	if r := rows[0]; r.Rule != "blue/db ingress[0]" || r.Action != "Accept" || r.Connections != 2 || r.Packets != 9 || r.Bytes != 900 {
		t.Errorf("the rule: %+v", r)
	}
	if r := rows[1]; r.Action != "Deny" || r.Container != "db" || r.Network != "blue" || r.Direction != "ingress" || r.Packets != 3 || !slices.ContainsFunc(r.Policies, func(p string) bool { return strings.Contains(p, "blue/db") }) {
		t.Errorf("what no rule let in: %+v", r)
	}
	o.switched.Rules[0].Denies, o.switched.Rules[0].Denied = true, pipeline.Count{Packets: 4}
	if rows, err := o.Here(t.Context()); err != nil || rows[0].Action != "Deny" || rows[0].Packets != 4 {
		t.Errorf("a rule that denies: %+v, %v", rows, err)
	}
	o.broken = errors.New("the switch is down")
	if _, err := o.Here(t.Context()); !errors.Is(err, o.broken) {
		t.Errorf("of a switch that is down: %v", err)
	}
}

// TestList: a policy is listed with what its rules have counted; where that is not known the list says so and is there all the same.
func TestList(t *testing.T) {
	o := newOffice(t)
	all, err := o.List(t.Context())
	if err != nil || len(all.Policies) != 1 || len(all.Notes) != 0 {
		t.Fatalf("%+v, %v", all, err)
	}
	if n := all.Policies[0].Counted; n == nil || n.Connections != 2 || n.DeniedPackets != 3 || n.DeniedBytes != 180 {
		t.Errorf("it has counted %+v", n)
	}
	if _, err := o.Config.Desk().Apply(t.Context(), api.ApplyRequest{Text: soon}); err != nil {
		t.Fatal(err)
	}
	all, err = o.List(t.Context())
	if err != nil || len(all.Policies) != 2 || !slices.ContainsFunc(all.Notes, func(n string) bool { return strings.Contains(n, "nothing is tried") }) {
		t.Errorf("with one that is only tried: %+v, %v", all, err)
	}
	o.broken = errors.New("the switch is down")
	o.Rules = rulecount.New(rulecount.Config{Self: self, Snapshot: o.Snapshot, Alive: func() []string { return nil }, Count: o.Here})
	all, err = o.List(t.Context())
	if err != nil || len(all.Policies) != 2 || !slices.ContainsFunc(all.Notes, func(n string) bool { return strings.Contains(n, "the switch is down") }) {
		t.Errorf("of a switch that is down: %+v, %v", all, err)
	}
}

// TestExplain: an answer has what the rules that decide have counted at the container that they are about.
func TestExplain(t *testing.T) {
	o := newOffice(t)
	e, err := o.Explain(t.Context(), api.ExplainRequest{From: "web", To: "db", Proto: "tcp", Port: 5432})
	if err != nil || len(e.Ingress.Counted) != 1 || e.Ingress.Counted[0].Packets != 9 {
		t.Errorf("what lets it in: %+v, %v", e.Ingress, err)
	}
	if len(e.Egress.Counted) != 0 {
		t.Errorf("no rule is about what web sends: %+v", e.Egress)
	}
}
