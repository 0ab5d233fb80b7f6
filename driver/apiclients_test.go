package driver

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

// visit connects to Docker's API as a user's Compose does, until leave is called.
func (e *engine) visit() (leave func()) {
	e.t.Helper()
	e.look() // the agent has been there before
	return e.come()
}

func (e *engine) come() (leave func()) {
	e.t.Helper()
	conn, err := net.Dial("unix", strings.TrimPrefix(e.host, "unix://"))
	check(e.t, err)
	return func() {
		_ = conn.Close()
		for e.rig.core.docker.APIClients() > 0 { // until the engine has seen it
			check(e.t, e.t.Context().Err())
		}
	}
}

// waits lets the watcher look, and wants it to look again soon.
func (e *engine) waits(what string) {
	e.t.Helper()
	if open, err := e.rig.mirror.look(context.Background()); err != nil || !open {
		e.t.Errorf("%s: open %v, %v", what, open, err)
	}
}

// What a client of Docker's API may have seen stays until it leaves, or uses it.
func TestNetworkStaysForAPIClients(t *testing.T) {
	for what, then := range map[string]func(e *engine, id string, leave func()){
		"it leaves": func(e *engine, _ string, leave func()) { leave() },
		"it stays":  func(e *engine, _ string, _ func()) { e.rig.now = e.rig.now.Add(2 * vanishWait) },
		"it uses it": func(e *engine, id string, leave func()) {
			e.container(id, "web", "")
			leave()
		},
	} {
		e := newEngine(t)
		e.red(false)
		e.look()
		n, _ := e.named("red")
		leave := e.visit()
		e.write(func(tx *replica.Tx) { retire(tx, "red") })
		e.waits(what)
		if _, there := e.named("red"); !there {
			t.Errorf("%s: the network went while a client was there", what)
		}
		then(e, n.ID, leave)
		e.look()
		_, there := e.named("red")
		if used := what == "it uses it"; there != used || used && e.record("red").Name == "" {
			t.Errorf("%s: the network is there: %v; records are\n%s", what, there, e.rig.records())
		}
	}
}

// Nor does a network come that a client may just have missed.
func TestNetworkIsNotMadeBeforeAPIClients(t *testing.T) {
	e := newEngine(t)
	leave := e.visit()
	e.red(false)
	e.waits("while a client is there")
	if ids := e.ids("red"); len(ids) != 0 {
		t.Errorf("it came while a client was there: %v", ids)
	}
	leave()
	e.meanwhile = func() { leave = e.come() }
	e.waits("when one comes meanwhile")
	if ids := e.ids("red"); len(ids) != 0 {
		t.Errorf("it came while a client came: %v", ids)
	}
	e.rig.now = e.rig.now.Add(createWait + time.Second)
	e.look()
	if ids := e.ids("red"); len(ids) != 1 {
		t.Errorf("docker has %v, after it waited for long", ids)
	}
	leave()
}

// A network that another host ends while a container starts on it here is kept, whatever
// Docker's next call is.
func TestEndedWhileStarting(t *testing.T) {
	e := newEngine(t)
	e.red(false)
	e.look()
	n, _ := e.named("red")
	e.write(func(tx *replica.Tx) { retire(tx, "red") })
	check(t, e.rig.Reannounce(e.rig.core.local.networks[n.ID].Prefixes[0])) // by RequestAddress
	if e.record("red").VNID != 7 {
		t.Fatalf("it is not kept:\n%s", e.rig.records())
	}
	e.rig.machine.attaching = func() error {
		e.write(func(tx *replica.Tx) { retire(tx, "red") })
		e.rig.machine.attaching = func() error {
			if _, live := cluster.Get[cluster.Network](e.rig.replica.Snapshot(), "red"); !live {
				return context.Canceled
			}
			return nil
		}
		return context.Canceled
	}
	e.run(n.ID, "web")
	if got := e.rig.records(); !strings.Contains(got, "network red vnid 7\nsubnet 10.9.0.0/24 of red") {
		t.Errorf("records are\n%s", got)
	}
}
