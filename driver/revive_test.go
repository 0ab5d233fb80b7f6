package driver

import (
	"context"
	"slices"
	"testing"

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
func TestRevive(t *testing.T) {
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
	e.rig.revive(context.Background())
	if want := []string{"db", "side"}; !slices.Equal(e.started, want) {
		t.Errorf("started %v, want %v", e.started, want)
	}
}
