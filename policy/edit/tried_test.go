package edit

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/policy/worlds"
)

func tried(text string) string {
	return strings.Replace(text, "namespace: blue", "namespace: blue, annotations: {grapevine.io/mode: try}", 1)
}

// TestTried: what is tried is in no world that is enforced, and says of connections that pass which it would deny; it stands
// beside what is in force under its name, and ends when that is applied, or deleted.
func TestTried(t *testing.T) {
	d, r := desk(t)
	modes := func() (text string) {
		t.Helper()
		all, err := d.List(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all.Policies {
			text += fmt.Sprintf("%s %s %d+%d\n", p, p.Mode, p.Selects, p.MaySelect)
		}
		return text
	}
	end := func(addr string, port uint16) api.TrafficEnd {
		return api.TrafficEnd{Addr: netip.MustParseAddr(addr), Port: port, Host: "host1"}
	}
	logged := func() (text string) {
		for _, c := range d.Logged([]api.Connection{
			{From: end("10.128.0.2", 40000), To: end("10.128.0.3", 5432), Proto: "tcp"}, // web to db
			{From: end("10.128.0.2", 40000), To: end("10.128.0.3", 80), Proto: "tcp"},
			{From: end("10.128.0.4", 40000), To: end("10.128.0.3", 5432), Proto: "tcp"}, // of unknown labels
		}) {
			text += fmt.Sprintf("%s %d %v %v %s\n", c.From.Addr, c.To.Port, c.Allowed, c.Tried, c.RuleNames())
		}
		return text
	}
	explained := func() api.Explanation {
		t.Helper()
		e, err := d.Explain(context.Background(), api.ExplainRequest{From: "web", To: "db", Port: 80})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	if got := explained(); got.Tried != nil || logged() != "" || view.Logs(r.Snapshot()) {
		t.Errorf("nothing is tried: %+v", got)
	}
	for range 2 {
		if got := apply(t, d, tried(db)); got != "NetworkPolicy blue/db is tried" {
			t.Errorf("%q", got)
		}
	}
	if w := worlds.Of(r.Snapshot(), self); len(w.Policies) != 0 || w.Level() != 0 || !view.Logs(r.Snapshot()) {
		t.Errorf("it is in force: %+v", w)
	}
	if got := modes(); got != "blue/db try 1+1\n" {
		t.Errorf("listed: %q", got)
	}
	const denies = "blue/db ingress (Deny)\n"
	if got := logged(); got != "10.128.0.2 80 true true "+denies+"10.128.0.4 5432 true true "+denies {
		t.Errorf("logged: %q", got)
	}
	if got := explained(); !got.Allowed || got.Tried == nil || got.Tried.Allowed || len(got.Tried.Rules) != 1 || got.Tried.Rules[0].Rule != "blue/db ingress" || got.Tried.Policies[0] != "blue/db" {
		t.Errorf("%+v", got.Tried)
	}
	if trial, err := d.Try(context.Background(), api.ApplyRequest{Text: tried(db)}); err != nil || len(trial.Changes) == 0 {
		t.Errorf("%+v, %v", trial, err)
	}

	// In force, and then another writing is tried in its place: what is denied already is not said.
	if got := apply(t, d, db); got != "NetworkPolicy blue/db is created, and is tried no more" || modes() != "blue/db enforce 1+1\n" || logged() != "" {
		t.Errorf("%q, %q, %q", got, modes(), logged())
	}
	apply(t, d, tried(strings.Replace(db, "port: 5432", "port: 80", 1)))
	if got := modes(); got != "blue/db enforce 1+1\nblue/db try 1+1\n" {
		t.Errorf("listed: %q", got)
	}
	if got := logged(); got != "10.128.0.2 5432 true true "+denies {
		t.Errorf("logged: %q", got)
	}
	if got := explained(); got.Allowed || !got.Tried.Allowed {
		t.Errorf("%+v", got)
	}
	both := strings.Join([]string{db, tried(db)}, "---\n") // what `policy get` prints can be applied
	if got := apply(t, d, both); got != "NetworkPolicy blue/db is unchanged\nNetworkPolicy blue/db is tried" || !strings.Contains(modes(), "try") {
		t.Errorf("%q, %q", got, modes())
	}
	if got := apply(t, d, db); got != "NetworkPolicy blue/db is unchanged, and is tried no more" {
		t.Errorf("%q", got)
	}
	apply(t, d, tried(db))
	done, err := d.Delete(context.Background(), api.DeletePolicyRequest{Kind: "netpol", Network: "blue", Name: "db"}) // opens nothing
	if err != nil || modes() != "blue/db enforce 1+1\n" || !strings.Contains(done.Text, "is tried no more; the one in force stays") {
		t.Errorf("%v, %q, %q", err, done.Text, modes())
	}
	if _, err := d.Delete(context.Background(), api.DeletePolicyRequest{Kind: "netpol", Network: "blue", Name: "db"}); err != nil || modes() != "" {
		t.Errorf("%v, %q", err, modes())
	}
	apply(t, d, tried(db))
	if _, err := d.Delete(context.Background(), api.DeletePolicyRequest{Kind: "netpol", Network: "blue", Name: "db"}); err != nil || modes() != "" {
		t.Errorf("%v, %q", err, modes())
	}
	if _, err := d.Delete(context.Background(), api.DeletePolicyRequest{Kind: "netpol", Network: "blue", Name: "db"}); err == nil {
		t.Error("it is deleted twice")
	}
}
