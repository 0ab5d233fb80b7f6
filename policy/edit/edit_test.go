package edit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/replica"
	"github.com/grapevine-net/grapevine/replica/replicatest"
)

const self = cluster.NodeID("00000000000000aa")

// desk is one of a host with the network blue and two containers on it.
func desk(t *testing.T) (Desk, *replica.Replica) {
	t.Helper()
	r := replicatest.New(t, self,
		cluster.Node{ID: self, Name: "host1", Enforces: cluster.EnforcesV1}, cluster.Network{Name: "blue", VNID: 1},
		cluster.Endpoint{ID: "e1", Network: "blue", Host: self, Name: "web", Addrs: []netip.Addr{netip.MustParseAddr("10.128.0.2")}, Labels: map[string]string{"app": "web"}, Labelled: true},
		cluster.Endpoint{ID: "e2", Network: "blue", Host: self, Name: "db", Addrs: []netip.Addr{netip.MustParseAddr("10.128.0.3"), netip.MustParseAddr("fd00::3")}, Labels: map[string]string{"app": "db"}, Labelled: true},
		cluster.Endpoint{ID: "e3", Network: "blue", Host: self, Name: "new", Addrs: []netip.Addr{netip.MustParseAddr("10.128.0.4")}},
	)
	return Desk{
		Self: self, Name: "host1", Replica: r, Published: func(key string) bool { return key != "noise" },
		Enforced: func(context.Context, uint64) error { return nil }, Lacks: func() string { return "CT zone" },
		Traffic: func(context.Context, bool) (api.Traffic, error) { return api.Traffic{}, nil },
	}, r
}

const head = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n"

const db = head + "metadata: {name: db, namespace: blue}\nspec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 5432}]}]}\n"

const names = "apiVersion: policy.networking.k8s.io/v1beta1\nkind: ClusterNetworkPolicy\nmetadata: {name: names}\n" +
	"spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Accept, to: [{domainNames: [api.example.com, '*.pypi.org']}]}, {action: Deny, to: [{networks: [0.0.0.0/0]}]}]}\n"

func apply(t *testing.T, d Desk, text string) string {
	t.Helper()
	done, err := d.Apply(context.Background(), api.ApplyRequest{Text: text})
	if err != nil {
		t.Fatal(err)
	}
	return done.Text
}

func count(t *testing.T, d Desk) int {
	t.Helper()
	all, err := d.List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return len(all.Policies)
}

func TestApply(t *testing.T) {
	d, r := desk(t)
	for _, c := range []struct{ text, want string }{
		{db, "NetworkPolicy blue/db is created"},
		{db, "NetworkPolicy blue/db is unchanged"},
		{strings.ReplaceAll(db, "5432", "5433"), "NetworkPolicy blue/db is changed"},
		{strings.ReplaceAll(db, "blue", "red"), "NetworkPolicy red/db is created; there is no network red: it selects nothing"},
	} {
		if got := apply(t, d, c.text); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	if p, _ := cluster.Get[cluster.Policy](r.Snapshot(), "network/blue/db"); p.Author != "host1" || len(p.Base) != 1 || !strings.Contains(p.Text, "5433") {
		t.Errorf("record %+v", p)
	}
	if notes := Notes(r.Snapshot()); len(notes) != 1 || !strings.Contains(notes[0], "red/db selects nothing") {
		t.Errorf("notes %q", notes)
	}
	all, err := d.List(context.Background())
	if err != nil || len(all.Policies) != 2 || all.Policies[0].Selects != 1 || all.Policies[0].MaySelect != 1 || all.Policies[1].Selects != 0 || len(all.Policies[1].Notes) != 1 {
		t.Errorf("%v, %+v", err, all)
	}
}

// What cannot be applied changes nothing, and the error names it.
func TestApplyAllOrNothing(t *testing.T) {
	d, r := desk(t)
	rev := r.Snapshot().Rev()
	large := db
	for i := range 900 {
		large = strings.Replace(large, "ingress: [", "ingress: [{from: [{podSelector: {matchLabels: {app: web"+strings.Repeat("x", i%50)+"}}}]}, ", 1)
	}
	for text, want := range map[string]string{
		db + "---\n" + head + "metadata: {name: two, namespace: blue}\nspec: {podSelector: {}, colour: red}\n":     "colour",
		db + "---\n" + strings.ReplaceAll(strings.ReplaceAll(db, "name: db", "name: two"), "app: web", "noise: x"): "label noise is told to no other host",
		large: "at most",
		"":    "no policy",
		strings.ReplaceAll(db, "blue", "provisional/1"): "provisional",
	} {
		_, err := d.Apply(context.Background(), api.ApplyRequest{Text: text})
		if refused, ok := errors.AsType[*api.Error](err); !ok || refused.Status != 400 || !strings.Contains(err.Error(), want) {
			t.Errorf("%.300q: want %q in %.500v", text, want, err)
		}
	}
	if r.Snapshot().Rev() != rev || count(t, d) != 0 {
		t.Error("something was written")
	}
}

func TestDelete(t *testing.T) {
	d, _ := desk(t)
	apply(t, d, db)
	for _, c := range []struct {
		r    api.DeletePolicyRequest
		want string
	}{
		{api.DeletePolicyRequest{Kind: "pod", Name: "db"}, "kind"},
		{api.DeletePolicyRequest{Kind: "netpol", Name: "db"}, "NETWORK/NAME"},
		{api.DeletePolicyRequest{Kind: "cnp", Network: "blue", Name: "db"}, "of no network"},
		{api.DeletePolicyRequest{Kind: "netpol", Network: "blue", Name: "web"}, "there is no NetworkPolicy blue/web"},
	} {
		if _, err := d.Delete(context.Background(), c.r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.r, err)
		}
	}
	done, err := d.Delete(context.Background(), api.DeletePolicyRequest{Kind: "NetworkPolicy", Network: "blue", Name: "db"})
	if err != nil || done.Text != "NetworkPolicy blue/db is deleted" || count(t, d) != 0 {
		t.Errorf("%q, %v", done.Text, err)
	}
}

func TestExplain(t *testing.T) {
	d, r := desk(t)
	explain := func(q api.ExplainRequest) (api.Explanation, error) { return d.Explain(context.Background(), q) }
	if e, err := explain(api.ExplainRequest{From: "web", To: "db"}); err != nil || !e.Allowed || len(e.Notes) != 1 || e.What != "ping" {
		t.Errorf("without policies: %v, %+v", err, e)
	}
	if _, err := r.Update(func(tx *replica.Tx) error {
		return tx.Put(cluster.Subnet{Prefix: netip.MustParsePrefix("10.128.0.0/24"), Network: "blue", Gateway: netip.MustParseAddr("10.128.0.1"), Home: self})
	}); err != nil {
		t.Fatal(err)
	}
	for to, noted := range map[string]bool{"10.128.0.9": true, "10.128.0.3": false, "10.128.0.1": false, "10.129.0.9": false} {
		e, err := explain(api.ExplainRequest{From: "web", To: to})
		if err != nil || slices.Contains(e.Notes, "no container has the address "+to+" of network blue") != noted {
			t.Errorf("to %s: %v, %q", to, err, e.Notes)
		}
	}
	// A service is no end of a connection: where it leads is chosen in the container that connects.
	if _, err := r.Update(func(tx *replica.Tx) error {
		return tx.Put(cluster.Service{Network: "blue", Name: "shop", Select: "web", Addrs: []netip.Addr{netip.MustParseAddr("10.128.0.77")}, Ports: []cluster.ServicePort{{Proto: "tcp", Port: 80, Target: 80}}})
	}); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"shop", "blue/shop", "10.128.0.77"} {
		if _, err := explain(api.ExplainRequest{From: "web", To: to, Port: 80}); err == nil || !strings.Contains(err.Error(), "service shop of network blue") {
			t.Errorf("to %s: %v", to, err)
		}
	}
	apply(t, d, db)
	e, err := explain(api.ExplainRequest{From: "web", To: "blue/db", Port: 5432})
	if err != nil || !e.Allowed || e.What != "port 5432/tcp" || len(e.Ingress.Rules) != 1 || e.Ingress.Rules[0].Rule != "blue/db ingress[0]" || e.Ingress.Rules[0].Author != "host1" {
		t.Errorf("%v, %+v", err, e)
	}
	e, err = explain(api.ExplainRequest{From: "10.128.0.4", To: "db", Port: 5432})
	if err != nil || e.Allowed || strings.Join(e.Ingress.Unknown, ", ") != "the labels of new" {
		t.Errorf("%v, %+v", err, e)
	}
	if e, err := explain(api.ExplainRequest{From: "web", To: "api.example.com", Port: 443}); err != nil || !e.Allowed || e.To.Name != "api.example.com" || e.To.Addr.IsValid() {
		t.Errorf("%v, %+v", err, e)
	}
	apply(t, d, names)
	d.Told = func() []policy.Answer {
		return []policy.Answer{
			{Endpoint: "e1", Name: "api.example.com", Addr: netip.MustParseAddr("192.0.2.1")}, {Endpoint: "e1", Name: "a.pypi.org", Addr: netip.MustParseAddr("192.0.2.3")},
			{Endpoint: "e1", Name: "b.pypi.org", Addr: netip.MustParseAddr("192.0.2.3")}, {Endpoint: "e1", Name: "api.example.com", Addr: netip.MustParseAddr("192.0.2.4"), Past: true},
			{Endpoint: "e2", Name: "api.example.com", Addr: netip.MustParseAddr("192.0.2.1")},
		}
	}
	const counts = "web can have 512 addresses open by name, each counted for each of its names, and has 3"
	for to, want := range map[string]struct {
		allowed bool
		note    string
	}{
		"api.example.com": {true, ""}, "pypi.org": {false, ""}, "192.0.2.1": {true, ""},
		"192.0.2.2": {false, "web reaches some others by name alone (*.pypi.org, api.example.com), and it was not told 192.0.2.2 for one of these by its host's resolver of late"},
	} {
		e, err := explain(api.ExplainRequest{From: "web", To: to, Port: 443})
		if err != nil || e.Allowed != want.allowed || strings.Join(e.Notes, "") != counts+want.note || (to == "192.0.2.1") != (len(e.Egress.Told) == 1) {
			t.Errorf("%s: %v, %+v", to, err, e)
		}
	}
	if _, err := d.Delete(context.Background(), api.DeletePolicyRequest{Kind: "cnp", Name: "names"}); err != nil {
		t.Fatal(err)
	}
	if e, err := explain(api.ExplainRequest{From: "2001:db8::7", To: "fd00::3"}); err != nil || e.Allowed || e.From.Host != "" {
		t.Errorf("%v, %+v", err, e)
	}
	for want, q := range map[string]api.ExplainRequest{
		"no container nobody": {From: "nobody", To: "db"}, "protocol": {From: "web", To: "db", Proto: "gre"}, "needs a port": {From: "web", To: "db", Proto: "udp"},
		"one container": {From: "db", To: "db"}, "of one family": {From: "198.51.100.7", To: "fd00::3"}, "on a network red": {From: "red/web", To: "db"},
	} {
		if _, err := explain(q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", q, err)
		}
	}
	if _, err := r.Update(func(tx *replica.Tx) error {
		return tx.Put(cluster.Endpoint{ID: "e4", Network: "blue", Host: self, Name: "db", Addrs: []netip.Addr{netip.MustParseAddr("10.128.0.9")}})
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := explain(api.ExplainRequest{From: "web", To: "db", Port: 5432}); err == nil || !strings.Contains(err.Error(), "there are several db: name one by its address: 10.128.0.3 (blue, host host1), 10.128.0.9") {
		t.Errorf("of two: %v", err)
	}
}

// TestTry: it is said what would change, by whom, and nothing is written.
func TestTry(t *testing.T) {
	d, r := desk(t)
	try := func(text string) api.Trial {
		t.Helper()
		tried, err := d.Try(context.Background(), api.ApplyRequest{Text: text})
		if err != nil || count(t, d) != 0 {
			t.Fatal(err, count(t, d))
		}
		return tried
	}
	said := func(tried api.Trial) (lines []string) {
		for _, c := range tried.Changes {
			to := c.To.Name
			if to == "" {
				to = c.To.Addr.String()
			}
			lines = append(lines, fmt.Sprintf("%s to %s: %s: %t", cmp.Or(c.From.Name, c.From.Addr.String()), to, strings.Join(c.What, ", "), c.Allowed))
		}
		return lines
	}
	got := said(try(db))
	for _, line := range []string{
		"web to db: other ports, ping: false", "new to db: port 5432/tcp, other ports, ping: false", "203.0.113.1 to db: port 5432/tcp, other ports, ping: false",
	} {
		if !slices.Contains(got, line) {
			t.Errorf("%q is not among %q", line, got)
		}
	}
	if tried := try(strings.Replace(db, "app: db", "app: none", 1)); len(tried.Notes) != 1 || !strings.Contains(tried.Notes[0], "may select 1 more, whose labels are not known yet") {
		t.Errorf("%q", tried.Notes)
	}
	// Who of those that were seen would be cut; the switch and the state stay as they are.
	end := func(addr, name string, port uint16) api.TrafficEnd {
		return api.TrafficEnd{Addr: netip.MustParseAddr(addr), Name: name, Network: "blue", Host: "host1", Port: port}
	}
	d.Traffic = func(_ context.Context, all bool) (api.Traffic, error) {
		if !all {
			t.Error("one host alone is asked")
		}
		return api.Traffic{
			Hosts: []api.TrafficHost{{Name: "host1", Since: time.Unix(0, 0)}, {Name: "host2", Error: "it does not answer"}},
			Connections: []api.Connection{
				{From: end("10.128.0.2", "", 40000), To: end("10.128.0.3", "", 5432), Proto: "tcp", State: "open"},
				{From: end("10.128.0.2", "", 40001), To: end("10.128.0.3", "", 80), Proto: "tcp", State: "open"},
				{From: end("10.128.0.2", "", 40002), To: end("10.128.0.3", "", 80), Proto: "tcp", State: "closed"},
			},
		}, nil
	}
	rev := r.Snapshot().Rev()
	tried := try(db)
	if len(tried.Seen.Changes) != 1 || tried.Seen.Judged != 3 || r.Snapshot().Rev() != rev {
		t.Fatalf("%+v", tried.Seen)
	}
	if c := tried.Seen.Changes[0]; c.From.Name != "web" || c.To.Host != "host1" || c.What != "port 80/tcp" || c.Connections != 2 || c.Open != 1 || c.Allowed || c.Rules[0].Rule != "blue/db ingress" {
		t.Errorf("%+v", c)
	}
	if notes := strings.Join(tried.Seen.Notes, "\n"); !strings.Contains(notes, "what containers of host host2 did is not in it: it does not answer") || !strings.Contains(notes, "host host1 counts since") {
		t.Errorf("notes %q", notes)
	}
	if _, err := d.Try(context.Background(), api.ApplyRequest{Text: "kind: Nothing"}); err == nil {
		t.Error("a text that is no policy is tried")
	}
}

// TestProblems: status names hosts that do not enforce, what cannot be read, and edits that were lost.
func TestProblems(t *testing.T) {
	d, r := desk(t)
	if p := d.Problems(r.Snapshot()); len(p) != 0 {
		t.Errorf("without policies: %+v", p)
	}
	apply(t, d, db)
	other := cluster.New("00000000000000bb")
	say := func(b cluster.Body) {
		t.Helper()
		rec, _, err := other.Put(b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Merge(cluster.Encode([]cluster.Record{rec})); err != nil {
			t.Fatal(err)
		}
	}
	say(cluster.Node{ID: other.Self(), Name: "host2", Agent: "v0.1"})
	say(cluster.Policy{Scope: cluster.ScopeNetwork, Network: "blue", Name: "later", Text: "newer"})
	for range 20 {
		say(cluster.Network{Name: "busy", VNID: uint32(time.Now().Nanosecond()%1000 + 2)})
		say(cluster.Network{Name: "busy"})
	}
	say(cluster.Policy{Scope: cluster.ScopeNetwork, Network: "blue", Name: "db", Text: db + "# other"})
	var codes []string
	for _, p := range d.Problems(r.Snapshot()) {
		codes = append(codes, string(p.Code)+": "+p.What)
	}
	text := strings.Join(codes, "\n")
	for _, want := range []string{
		"policy-unenforced: host host2", "policy-unread: policy network/blue/later",
		"policy-lost: an edit of policy blue/db on host host1 was lost: host host2 had changed it at the same time",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
	all, _ := d.List(context.Background())
	if lost := all.Policies[0].Lost; len(lost) != 1 || !strings.Contains(lost[0].Text, "5432") || lost[0].Author != "host1" {
		t.Errorf("lost %+v", lost)
	}
	apply(t, d, strings.ReplaceAll(db, "5432", "1"))
	for _, p := range d.Problems(r.Snapshot()) {
		if p.Code == api.PolicyLost {
			t.Errorf("settled, and %s", p.What)
		}
	}
}
