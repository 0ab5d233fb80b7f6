package driver

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
)

// What dockerd says where it does not find a driver: unmanaged, managed, disabled, or
// with nobody at its socket (Engines 20.10, 26.1 and 28.5).
func TestMissing(t *testing.T) {
	missed := missing("grapevine:latest", "/run/docker/plugins/grapevine.sock")
	for failed, want := range map[string]bool{
		`plugin "grapevine:latest" not found`:                                                                true,
		`error while looking up: plugin grapevine:latest found but disabled`:                                 true,
		`dial unix /run/docker/plugins/grapevine.sock: connect: connection refused`:                          true,
		`dial unix /run/docker/plugins/0123/grapevine.sock: connect: no such file`:                           true,
		`IpamDriver.RequestAddress: no addresses: host was forgotten by the cluster`:                         true,
		`NetworkDriver.CreateEndpoint: network 0123 is not known to this agent, whose state may be new; see`: true,
		`plugin "weave" not found`:     false,
		`plugin "grapevine" not found`: false,
		`NetworkDriver.CreateEndpoint: port is already in use by container web; stop`: false,
		`network grapevine:latest not found`:                                          false,
		``:                                                                            false,
	} {
		if got := missed(failed); got != want {
			t.Errorf("%q: %v, want %v", failed, got, want)
		}
	}
}

// Only what Docker was to start, and could not for want of this driver, is started;
// first those that have networks, then those that are within these.
func TestRestartFailed(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	e.look()
	const gone = `plugin "grapevine:latest" not found`
	e.failed = map[string]string{"db": gone, "up": gone, "other": `port is taken`, "fine": "", "side": "cannot join network of a non running container: cdb", "apart": "disk is full"}
	add := func(name, state, within string) {
		if within == "" {
			e.container(id, name, "")
		} else {
			e.containers[name] = container.Summary{ID: "c" + name, Names: []string{"/" + name}, NetworkSettings: &container.NetworkSettingsSummary{}}
		}
		c := e.containers[name]
		c.State = state
		if within != "" {
			c.HostConfig.NetworkMode = "container:" + within
		}
		e.containers[name] = c
	}
	for _, name := range []string{"db", "other", "fine", "byhand"} {
		add(name, "exited", "")
	}
	add("up", "running", "")
	add("side", "exited", "cdb")
	add("apart", "exited", "cother")
	e.rig.mirror.restartFailed(context.Background())
	if want := []string{"db", "side"}; !slices.Equal(e.started, want) {
		t.Errorf("started %v, want %v", e.started, want)
	}
}

// What this driver refused when Docker started is started too, and tried again until it runs, even if
// it fails for another reason meanwhile; status can name it.
func TestRestartUntilItRuns(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	e.look()
	e.container(id, "db", "")
	c := e.containers["db"]
	c.State = "exited"
	e.containers["db"] = c
	e.failed = map[string]string{"db": "failed to set up container networking: remote: address in 10.128.0.0/22: this is no subnet of the cluster (any more)"}
	e.refusals = map[string]int{"db": 1}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { e.rig.mirror.restartFailed(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	for len(e.rig.Unstarted()) == 0 {
		select {
		case <-done:
			t.Fatalf("it gave up; started %v", e.started)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if u := e.rig.Unstarted()[0]; u.Container != "db" || !strings.Contains(u.Why, "remote: not yet") {
		t.Errorf("unstarted: %+v", u)
	}
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("it does not try again")
	}
	if !slices.Equal(e.started, []string{"db"}) || len(e.rig.Unstarted()) != 0 {
		t.Errorf("started %v, unstarted %v", e.started, e.rig.Unstarted())
	}
}
