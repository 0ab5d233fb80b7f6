package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	dockernet "github.com/docker/docker/api/types/network"
	"github.com/docker/go-plugins-helpers/network"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/replica"
)

// labels are those on record of an endpoint, "unknown" if they are not.
func (e *engine) labels(endpoint string) string {
	rec, _ := cluster.Get[cluster.Endpoint](e.rig.replica.Snapshot(), endpoint)
	switch {
	case rec.Awaited:
		return "awaited"
	case !rec.Labelled:
		return "unknown"
	}
	var all []string
	for _, k := range slices.Sorted(maps.Keys(rec.Labels)) {
		all = append(all, k+"="+rec.Labels[k])
	}
	return strings.Join(all, " ")
}

// starts is docker run as far as to the return of Join: Docker's list has the container without its endpoint.
func (e *engine) starts(networkID, name string, labels map[string]string) (endpoint string) {
	e.t.Helper()
	endpoint, err := e.join(networkID, name, labels)
	check(e.t, err)
	return endpoint
}

// join is starts, which may fail.
func (e *engine) join(networkID, name string, labels map[string]string) (endpoint string, err error) {
	e.t.Helper()
	endpoint, err = e.endpoint(networkID, name)
	check(e.t, err)
	e.mu.Lock()
	e.containers[name] = container.Summary{
		ID: "c" + name, Names: []string{"/" + name}, Labels: labels, State: "created",
		NetworkSettings: &container.NetworkSettingsSummary{Networks: map[string]*dockernet.EndpointSettings{e.networks[networkID].Name: {}}},
	}
	e.starting = append(e.starting, endpoint)
	e.mu.Unlock()
	_, err = e.rig.Join(context.Background(), &network.JoinRequest{NetworkID: networkID, EndpointID: endpoint})
	return endpoint, err
}

// policy makes the cluster have one.
func (e *engine) policy(text string) {
	_, err := e.rig.replica.Update(func(tx *replica.Tx) error {
		return tx.Put(cluster.Policy{Scope: cluster.ScopeCluster, Name: "p", Text: text})
	})
	check(e.t, err)
}

// The watcher publishes labels, whether there are policies or not; where there are, Join does.
func TestLabels(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	ep := e.run(id, "web")
	const web = "com.docker.compose.service=svc grapevine.io/name=web"
	if got := e.labels(ep); got != "unknown" {
		t.Errorf("before a look: %s", got)
	}
	if e.look(); e.labels(ep) != web {
		t.Errorf("after a look: %s", e.labels(ep))
	}
	e.rig.labels.hears.Store(true)
	mine := map[string]string{"tier": "db", "com.docker.compose.project.config_files": "x", "grapevine.io/host": "liar"}
	if got := e.labels(e.starts(id, "early", mine)); got != "unknown" {
		t.Errorf("in Join, where no policy is: %s", got)
	}
	e.policy("x")
	late := e.starts(id, "late", mine)
	if got := e.labels(late); got != "grapevine.io/name=late tier=db" {
		t.Errorf("in Join: %s", got)
	}
	rev := e.rig.replica.Snapshot().Rev()
	e.container(id, "late", late)
	e.mu.Lock()
	c := e.containers["late"]
	c.Labels = mine
	e.containers["late"] = c
	e.mu.Unlock()
	if e.look(); e.labels(late) != "grapevine.io/name=late tier=db" || e.rig.replica.Snapshot().Rev() == rev {
		t.Errorf("after a look: %s", e.labels(late))
	}
	rev = e.rig.replica.Snapshot().Rev()
	if e.look(); e.rig.replica.Snapshot().Rev() != rev {
		t.Error("a look at what is known wrote something")
	}
}

// Whose labels asked for a port of all hosts first stays known, also when its record is written again.
func TestExposing(t *testing.T) {
	e := newEngine(t)
	e.policy("x") // labels are asked for in Join
	e.rig.labels.hears.Store(true)
	id := e.user("blue")
	since := func(endpoint string) uint64 {
		rec, _ := cluster.Get[cluster.Endpoint](e.rig.replica.Snapshot(), endpoint)
		return rec.Exposing
	}
	labels := map[string]string{"grapevine.expose": "80"}
	first, second, none := e.starts(id, "first", labels), e.starts(id, "second", labels), e.starts(id, "none", map[string]string{"tier": "db"})
	when := since(first)
	if when == 0 || since(second) <= when || since(none) != 0 {
		t.Errorf("since %d, %d and %d", when, since(second), since(none))
	}
	e.container(id, "first", first)
	e.mu.Lock()
	c := e.containers["first"]
	c.Labels = labels
	e.containers["first"] = c
	e.mu.Unlock()
	e.look()
	if rec, _ := cluster.Get[cluster.Endpoint](e.rig.replica.Snapshot(), first); rec.Name != "first" || rec.Exposing != when {
		t.Errorf("after a look it is %q, since %d, not %d", rec.Name, rec.Exposing, when)
	}
}

// Labels without room are not cut: the endpoint is unknown, and status names it.
func TestTooManyLabels(t *testing.T) {
	e := newEngine(t)
	e.policy("x")
	e.rig.labels.hears.Store(true)
	id := e.user("blue")
	many := map[string]string{}
	for i := range cluster.MaxLabels {
		many[fmt.Sprint("l", i)] = "x"
	}
	ep := e.starts(id, "web", many)
	if got := e.labels(ep); got != "unknown" {
		t.Errorf("in Join: %s", got)
	}
	e.container(id, "web", ep)
	e.mu.Lock()
	c := e.containers["web"]
	c.Labels = many
	e.containers["web"] = c
	e.mu.Unlock()
	e.look()
	if got := e.rig.Unlabelled(); e.labels(ep) != "unknown" || !slices.Equal(got, []Unlabelled{{"web", "blue"}}) {
		t.Errorf("labels %s, unlabelled %v", e.labels(ep), got)
	}
}

// Nor is one open whose labels say who may call it: it does not start, and where Docker did not tell in time, its
// network is one on which what is not known waits.
func TestTooManyLabelsThatAsk(t *testing.T) {
	e := newEngine(t)
	e.rig.labels.hears.Store(true)
	id := e.user("blue")
	many := map[string]string{"grapevine.from": "none", "long": strings.Repeat("x", cluster.MaxLabelBytes)}
	marked := func() bool {
		n, _ := cluster.Get[cluster.Network](e.rig.replica.Snapshot(), "blue")
		return n.Labelled
	}
	if _, err := e.join(id, "web", many); err == nil || !strings.Contains(err.Error(), "more labels than hosts can be told") || marked() {
		t.Errorf("in Join: %v", err)
	}
	e.rig.labels.hears.Store(false)
	ep, err := e.join(id, "early", many)
	check(t, err)
	e.container(id, "early", ep)
	e.mu.Lock()
	c := e.containers["early"]
	c.Labels = many
	e.containers["early"] = c
	e.mu.Unlock()
	if e.look(); !marked() {
		t.Error("the network of one that started before Docker answered is not marked")
	}
	rev := e.rig.replica.Snapshot().Rev()
	if e.look(); e.rig.replica.Snapshot().Rev() != rev {
		t.Error("a second look wrote something")
	}
}

// While Docker does not answer, Join waits no longer than its bound, and not at all where it is known; nothing that
// was known of other containers counts for this one.
func TestLabelsWithoutDocker(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	ended := func(name string, labels map[string]string) {
		e.container(id, name, "")
		c := e.containers[name]
		c.Labels = labels
		e.containers[name] = c
		e.look()
	}
	join := func(name string) (labels string, took time.Duration) {
		t.Helper()
		ep, err := e.endpoint(id, name)
		check(t, err)
		began := time.Now()
		_, err = e.rig.Join(context.Background(), &network.JoinRequest{NetworkID: id, EndpointID: ep})
		check(t, err)
		return e.labels(ep), time.Since(began)
	}
	e.policy("x")
	ended("db1", map[string]string{"tier": "db"})
	e.rig.reopen() // another agent
	e.rig.core.docker = docker.New("unix:///nowhere")
	if got, _ := join("db1"); got != "unknown" {
		t.Errorf("of a container that is alone on its network, as far as was known: %s", got)
	}
	if got, _ := join("evil"); got != "unknown" {
		t.Errorf("of one that came while no agent ran: %s", got)
	}

	e.rig.core.docker = docker.New(e.host)
	e.rig.labels.hears.Store(true)
	e.mu.Lock() // Docker hangs
	defer e.mu.Unlock()
	if got, took := join("db5"); got != "awaited" || took < askingFor || took > 10*askingFor {
		t.Errorf("where Docker hangs: %s, after %s", got, took)
	}
	e.rig.labels.hears.Store(false)
	if got, took := join("db6"); got != "unknown" || took > askingFor {
		t.Errorf("where Docker is known to hang: %s, after %s", got, took)
	}
}

// What Docker keeps on its disk says, while it answers nothing, that a container of a network asks for something: it was made while no
// agent ran, and may be the one that starts.
func TestLabelsOnDockersDisk(t *testing.T) {
	e := newEngine(t)
	root := t.TempDir()
	note := filepath.Join(t.TempDir(), docker.RootFile)
	check(t, os.WriteFile(note, []byte(root), 0o600))
	e.rig.labels.kept = docker.NewKept(note)
	for i, c := range []struct {
		what, labels, network string
		marked                bool
	}{
		{"none that asks", `{"tier": "db", "grapevine.ports": "web=80"}`, "", false},
		{"one elsewhere", `{"grapevine.from": "none"}`, "other", false},
		{"one that has been there", `{"grapevine.from": "none"}`, "by ID", true},
		{"one that has not started yet", `{"grapevine.to": "web:80"}`, "by name", true},
	} {
		name := fmt.Sprint("n", i)
		e.rig.core.docker = docker.New(e.host)
		id := e.user(name)
		e.look()
		e.rig.core.docker = docker.New("unix:///nowhere")
		networks := map[string]any{c.network: map[string]any{}}
		switch c.network {
		case "by ID":
			networks = map[string]any{"its old name": map[string]any{"NetworkID": id}}
		case "by name":
			networks = map[string]any{name: map[string]any{}}
		}
		kept, err := json.Marshal(map[string]any{"ID": fmt.Sprint("c", i), "Config": map[string]any{"Labels": json.RawMessage(c.labels)}, "NetworkSettings": map[string]any{"Networks": networks}})
		check(t, err)
		dir := filepath.Join(root, "containers", fmt.Sprint("c", i))
		check(t, os.MkdirAll(dir, 0o700))
		check(t, os.WriteFile(filepath.Join(dir, "config.v2.json"), kept, 0o600))
		ep, err := e.endpoint(id, "early")
		check(t, err)
		_, err = e.rig.Join(t.Context(), &network.JoinRequest{NetworkID: id, EndpointID: ep})
		check(t, err)
		if n, _ := cluster.Get[cluster.Network](e.rig.replica.Snapshot(), name); n.Labelled != c.marked {
			t.Errorf("%s: the network is marked: %v", c.what, n.Labelled)
		}
	}
}

// The first container of a network whose labels ask for something, and of which Docker does not tell in time, has them as soon as
// the watcher has; until then nothing passes. So it is with labels that have no room in a record.
func TestAwaited(t *testing.T) {
	e := newEngine(t)
	e.rig.labels.hears.Store(true)
	id := e.user("blue")
	many := map[string]string{}
	for i := range cluster.MaxLabels {
		many[fmt.Sprint("l", i)] = "x"
	}
	for name, labels := range map[string]map[string]string{"db": {"grapevine.from": "web"}, "plain": {"tier": "db"}, "many": many} {
		ep, err := e.endpoint(id, name)
		check(t, err)
		_, err = e.rig.Join(context.Background(), &network.JoinRequest{NetworkID: id, EndpointID: ep}) // Docker's lists have it later
		check(t, err)
		if got := e.labels(ep); got != "awaited" {
			t.Errorf("%s, which Docker does not list: %s", name, got)
		}
		e.container(id, name, ep)
		e.mu.Lock()
		c := e.containers[name]
		c.Labels = labels
		e.containers[name] = c
		e.mu.Unlock()
		e.look()
		if got := e.labels(ep); got == "awaited" || name != "many" && got == "unknown" {
			t.Errorf("%s, which Docker lists: %s", name, got)
		}
	}
}

// A container whose labels ask for something marks its network before it starts for the first time, as it may do with Docker.
func TestAskingBeforeTheStart(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	e.container(id, "db", "")
	e.mu.Lock()
	c := e.containers["db"]
	c.Labels, c.State = map[string]string{"grapevine.from": "web"}, "created"
	e.containers["db"] = c
	e.mu.Unlock()
	e.look()
	if n, _ := cluster.Get[cluster.Network](e.rig.replica.Snapshot(), "blue"); !n.Labelled {
		t.Error("the network is not marked")
	}
	rev := e.rig.replica.Snapshot().Rev()
	if e.look(); e.rig.replica.Snapshot().Rev() != rev {
		t.Error("a second look wrote something")
	}
}

func TestPublished(t *testing.T) {
	for key, want := range map[string]bool{
		"com.docker.compose.project": true, "com.docker.compose.service": true, "com.docker.compose.config-hash": false, "app": true,
		"com.docker.compose.project.working_dir": false, "org.opencontainers.image.title": false, "com.example.compose": true,
	} {
		if Published(key) != want {
			t.Errorf("%s: %v", key, !want)
		}
	}
}
