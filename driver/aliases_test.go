package driver

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
)

// inspecting lets the engine's driver inspect containers until the test ends.
func (e *engine) inspecting() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { e.rig.core.inspector.run(ctx); close(done) }()
	e.t.Cleanup(func() { cancel(); <-done })
}

// names are the name and aliases on record of an endpoint.
func (e *engine) names(endpoint string) string {
	rec, _ := cluster.Get[cluster.Endpoint](e.rig.replica.Snapshot(), endpoint)
	return strings.Join(append([]string{rec.Name}, rec.AllAliases()...), " ")
}

// becomes looks whenever the driver is poked, until an endpoint has the names.
func (e *engine) becomes(endpoint, want string) {
	e.t.Helper()
	for e.look(); e.names(endpoint) != want; e.look() {
		select {
		case <-e.rig.core.wake:
		case <-time.After(5 * time.Second):
			e.t.Fatalf("the names are %q, want %q", e.names(endpoint), want)
		}
	}
}

func TestAliases(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	e.aliases = []string{"sql", "bad\n", "cweb", "", "sql", "db"} // not the service in its label, svc
	e.linkLocal = []string{"169.254.1.1", "10.0.0.1", "", "fe80::1"}
	ep := e.run(id, "web")
	e.look()
	if got := e.names(ep); got != "web" {
		t.Fatalf("before anything was inspected: %q", got)
	}
	e.inspecting()
	e.becomes(ep, "web db sql") // and not its ID, cweb
	linkLocal := func() string {
		rec, _ := cluster.Get[cluster.Endpoint](e.rig.replica.Snapshot(), ep)
		return fmt.Sprint(rec.LinkLocal)
	}
	if got := linkLocal(); got != "[169.254.1.1 fe80::1]" {
		t.Errorf("link-local addresses: %s", got)
	}

	// A new agent keeps what is on record until it knows better.
	e.rig.core.inspector.known = map[string]inspected{}
	e.rig.core.inspector.ctx = nil
	e.look()
	if got := e.names(ep); got != "web db sql" {
		t.Errorf("after a restart: %q", got)
	}
	if got := linkLocal(); got != "[169.254.1.1 fe80::1]" {
		t.Errorf("link-local addresses after a restart: %s", got)
	}
}

// docker rename: the engine's names for the endpoint go with it.
func TestAliasesAfterRename(t *testing.T) {
	e := newEngine(t)
	ep := e.run(e.user("blue"), "web")
	e.inspecting()
	e.becomes(ep, "web")
	e.mu.Lock()
	c := e.containers["web"]
	c.Names = []string{"/web2"}
	e.containers["web"], e.aliases = c, []string{"new"}
	e.mu.Unlock()
	e.becomes(ep, "web2 new")
}

// A container that cannot be inspected, as while it starts, holds nothing up.
func TestInspectionWaitsAlone(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	e.aliases, e.locked = []string{"sql"}, make(chan struct{})
	ep := e.run(id, "web")
	e.inspecting()
	e.look()
	e.look()
	if got := e.names(ep); got != "web" {
		t.Errorf("while it starts: %q", got)
	}
	close(e.locked)
	e.becomes(ep, "web sql")

	// When it has gone, what it told goes.
	e.stop(id, "web", ep)
	e.rm("web")
	e.look()
	if n := len(e.rig.core.inspector.known); n != 0 {
		t.Errorf("%d endpoints still known", n)
	}
}

// As many aliases as a record has room for are told to the cluster; the others are named.
func TestManyAliases(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	e.inspecting()
	for i := range 1000 {
		e.aliases = append(e.aliases, fmt.Sprintf("alias%04d", i))
	}
	ep := e.run(id, "web")
	e.becomes(ep, "web "+strings.Join(e.aliases, " "))
	if u := e.rig.Untold(); len(u) != 0 {
		t.Errorf("untold: %v", u)
	}

	e.aliases = []string{"sql", "not\x00printable"}
	for i := range 200 {
		e.aliases = append(e.aliases, fmt.Sprintf("%s%04d", strings.Repeat("x", 250), i))
	}
	ep = e.run(id, "db")
	e.becomes(ep, "db sql "+strings.Join(e.aliases[2:97], " "))
	if u := e.rig.Untold(); len(u) != 1 || u[0].Container != "db" || u[0].Network != "blue" || len(u[0].Aliases) != 106 || u[0].Aliases[0] != "not\x00printable" {
		t.Errorf("untold: %q", u)
	}
}
