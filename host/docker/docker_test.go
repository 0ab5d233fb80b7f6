package docker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// api serves answers by method and path, without the version, on a unix socket.
func api(t *testing.T, path string, answers map[string]http.HandlerFunc) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, l, answers)
}

func serve(t *testing.T, l net.Listener, answers map[string]http.HandlerFunc) (stop func()) {
	t.Helper()
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := r.URL.Path
		if strings.HasPrefix(p, "/v1.") {
			p = p[strings.Index(p[1:], "/")+1:]
		}
		w.Header().Set("Api-Version", "1.41")
		w.Header().Set("Content-Type", "application/json")
		if p == "/_ping" {
			return
		}
		answer, ok := answers[r.Method+" "+p]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprintln(w, `{"message":"not found"}`)
			return
		}
		answer(w, r)
	})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return func() { _ = srv.Close() }
}

func text(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprintln(w, body)
	}
}

func TestLists(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.sock")
	api(t, path, map[string]http.HandlerFunc{
		"GET /networks": text(200, `[{"Name":"blue","Id":"n1","Driver":"grapevine:latest","Internal":true,"IPAM":{"Driver":"grapevine:latest",
			"Config":[{"Subnet":"10.1.0.0/24","Gateway":"10.1.0.1","AuxiliaryAddresses":{"x":"10.1.0.9"}}]}}]`),
		"GET /containers/json": text(200, `[{"Id":"c1","Names":["/other/link","/web"],"NetworkSettings":{"Networks":{"blue":{"NetworkID":"n1","EndpointID":"e1"},"none":null}}},
			{"Id":"c3","Names":["/sick"],"State":"running","Status":"Up 2 minutes (unhealthy)"},{"Id":"c4","Names":["/new"],"Status":"Up 1 second (health: starting)"},
			{"Id":"c5","Names":["/paused"],"State":"paused","Status":"Up 2 minutes (Paused)"},{"Id":"c6","Names":["/well"],"State":"running","Status":"Up 2 minutes (healthy)"},
			{"Id":"c2","Names":[],"State":"exited","HostConfig":{"NetworkMode":"container:c1"},"NetworkSettings":null}]`),
		"GET /plugins/0123/json": text(200, `{"Id":"0123","Name":"grapevine:latest","PluginReference":"example.org/grapevine/grapevine:1"}`),
	})
	c := New("unix://" + path)
	nets, err := c.Networks(t.Context())
	if err != nil || len(nets) != 1 || !nets[0].Internal || nets[0].Pools[0].Aux["x"] != "10.1.0.9" || nets[0].IPAMDriver != "grapevine:latest" {
		t.Errorf("networks: %+v, %v", nets, err)
	}
	list, err := c.Containers(t.Context())
	if err != nil || len(list) != 6 || list[0].Name != "web" || len(list[0].Networks) != 1 || list[0].Networks[0] != (Attachment{"blue", "n1", "e1"}) ||
		list[0].Within != "" || list[5].Within != "c1" || list[5].State != "exited" ||
		list[0].Unready || !list[1].Unready || !list[2].Unready || !list[3].Unready || list[4].Unready ||
		list[0].Sick || !list[1].Sick || list[2].Sick || !list[3].Sick || list[4].Sick || list[1].Paused || !list[3].Paused {
		t.Errorf("containers: %+v, %v", list, err)
	}
	p, err := c.Plugin(t.Context(), "0123")
	if err != nil || p != (Plugin{Name: "grapevine:latest", Reference: "example.org/grapevine/grapevine:1"}) {
		t.Errorf("plugin: %v, %v", p, err)
	}
}

func TestSwarm(t *testing.T) {
	for said, want := range map[string]Swarm{
		`{"Swarm":{"LocalNodeState":"inactive"}}`:                               {},
		`{"Swarm":{"LocalNodeState":"active","Cluster":{"DataPathPort":7777}}}`: {Active: true, VXLANPort: 7777},
		`{"Swarm":{"LocalNodeState":"active","Cluster":null}}`:                  {Active: true}, // a worker
	} {
		path := filepath.Join(t.TempDir(), "d.sock")
		api(t, path, map[string]http.HandlerFunc{"GET /info": text(200, said)})
		if got, err := New("unix://" + path).Swarm(t.Context()); err != nil || got != want {
			t.Errorf("%s: %+v, %v", said, got, err)
		}
	}
}

// Docker says where it keeps what it has, and that is known when it answers nothing.
func TestKeptRoot(t *testing.T) {
	root, note, path := t.TempDir(), filepath.Join(t.TempDir(), RootFile), filepath.Join(t.TempDir(), "d.sock")
	if err := os.MkdirAll(filepath.Join(root, "containers", "c"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "containers", "c", "config.v2.json"), []byte(`{"ID":"c","Config":{"Labels":{"word":""}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	stop := api(t, path, map[string]http.HandlerFunc{"GET /info": text(200, `{"DockerRootDir":"`+root+`"}`)})
	for _, k := range []*Kept{NewKept(note), NewKept(note)} {
		if err := k.Ask(t.Context(), New("unix://"+path)); err != nil {
			t.Fatal(err)
		}
		if list, err := k.Containers("word"); err != nil || len(list) != 1 || list[0].ID != "c" {
			t.Errorf("as Docker said: %v, %v", list, err)
		}
	}
	stop()
	after := NewKept(note)
	if err := after.Ask(t.Context(), New("unix://"+path)); err == nil {
		t.Error("nobody answers, and there is no error")
	}
	if list, err := after.Containers("word"); err != nil || len(list) != 1 {
		t.Errorf("as it is noted: %v, %v", list, err)
	}
}

func TestInspect(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.sock")
	api(t, path, map[string]http.HandlerFunc{
		"GET /containers/old/json": text(200, `{"Id":"old","Name":"/web","NetworkSettings":{"Networks":{"blue":{"EndpointID":"e1","Aliases":["sql","0123456789ab"]},
			"red":{"EndpointID":"","Aliases":["sql"]},"none":null}}}`),
		"GET /containers/new/json": text(200, `{"Id":"new","Name":"/web","State":{"Error":"no driver"},"HostConfig":{"CapAdd":["CAP_NET_ADMIN"],"PortBindings":{"80/tcp":[{"HostPort":"444"}],"53/udp":[{"HostPort":"8000-8010"}],"81/tcp":[{"HostPort":""}]},"RestartPolicy":{"Name":"always"}},"NetworkSettings":{"Networks":{"blue":{"EndpointID":"e1","IPAMConfig":{"LinkLocalIPs":["169.254.1.1"]},"Aliases":["sql"],"DNSNames":["web","sql","host"]}}}}`),
	})
	c := New("unix://" + path)
	for id, want := range map[string]string{"old": "map[e1:[sql 0123456789ab]]", "new": "map[e1:[sql web sql host]]"} {
		d, err := c.Inspect(t.Context(), id)
		if err != nil || d.Name != "web" || fmt.Sprint(d.Names) != want {
			t.Errorf("%s: %+v, %v", id, d, err)
		}
		if local := fmt.Sprint(d.LinkLocal) == "map[e1:[169.254.1.1]]"; local != (id == "new") {
			t.Errorf("%s: %+v", id, d)
		}
		slices.SortFunc(d.Publishes, func(a, b PortRange) int { return cmp.Compare(a.First, b.First) })
		if ports := fmt.Sprint(d.Publishes) == "[{tcp 444 444} {udp 8000 8010}]"; ports != (id == "new") {
			t.Errorf("%s: %+v", id, d)
		}
		if d.NetAdmin != (id == "new") {
			t.Errorf("%s: %+v", id, d)
		}
		if failed := d.Restarts && d.Failed == "no driver"; failed != (id == "new") {
			t.Errorf("%s: %+v", id, d)
		}
	}
	if _, err := c.Inspect(t.Context(), "gone"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a container that is gone: %v", err)
	}
}

func TestCreateAndRemove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.sock")
	var got map[string]any
	api(t, path, map[string]http.HandlerFunc{
		"POST /networks/create": func(w http.ResponseWriter, r *http.Request) {
			if err := json.NewDecoder(r.Body).Decode(&got); err != nil || got["Name"] == "taken" {
				text(409, `{"message":"network with name taken already exists"}`)(w, r)
				return
			}
			text(201, `{"Id":"n1"}`)(w, r)
		},
		"DELETE /networks/busy": text(403, `{"message":"network busy has active endpoints"}`),
	})
	c := New("unix://" + path)
	id, err := c.CreateNetwork(t.Context(), Network{Name: "blue", Driver: "gv", IPAMDriver: "gv", Pools: []IPAM{{Subnet: "10.1.0.0/24"}}})
	if err != nil || id != "n1" || fmt.Sprint(got["IPAM"]) != "map[Config:[map[Subnet:10.1.0.0/24]] Driver:gv Options:<nil>]" {
		t.Errorf("create: %q, %v, %v", id, err, got)
	}
	dual := []IPAM{{Subnet: "10.1.0.0/24"}, {Subnet: "fd12::/64"}}
	if _, err := c.CreateNetwork(t.Context(), Network{Name: "dual", Pools: dual}); err != nil || got["EnableIPv6"] != true || got["EnableIPv4"] != nil {
		t.Errorf("both families: %v, %v", got, err)
	}
	if _, err := c.CreateNetwork(t.Context(), Network{Name: "six", Pools: dual[1:]}); err == nil || !strings.Contains(err.Error(), "upgrade it to 28.0") || got["Name"] == "six" {
		t.Errorf("IPv6 alone on an engine that cannot: %v", err)
	}
	if _, err := c.CreateNetwork(t.Context(), Network{Name: "taken"}); !errors.Is(err, ErrConflict) {
		t.Errorf("a taken name: %v", err)
	}
	if err := c.RemoveNetwork(t.Context(), "busy"); !errors.Is(err, ErrConflict) {
		t.Errorf("a busy network: %v", err)
	}
	if err := c.RemoveNetwork(t.Context(), "gone"); err != nil {
		t.Errorf("a network that is gone: %v", err)
	}
}

// An engine that restarts, even on a new socket, is found again.
func TestRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.sock")
	c := New("unix://" + path)
	if _, err := c.Networks(t.Context()); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("no engine: %v", err)
	}
	for range 2 {
		stop := api(t, path, map[string]http.HandlerFunc{"GET /networks": text(200, `[]`)})
		if _, err := c.Networks(t.Context()); err != nil {
			t.Error(err)
		}
		stop()
	}
}

func TestWatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.sock")
	next := make(chan struct{})
	api(t, path, map[string]http.HandlerFunc{"GET /events": func(w http.ResponseWriter, r *http.Request) {
		if f := r.URL.Query().Get("filters"); !strings.Contains(f, `"network":true`) {
			t.Errorf("filters are %s", f)
		}
		w.(http.Flusher).Flush()
		<-next
		fmt.Fprintln(w, `{"Type":"network","Action":"create","Actor":{"ID":"n1"}}`)
		w.(http.Flusher).Flush()
		<-next
	}})
	c := New("unix://" + path)
	calls := make(chan struct{}, 10)
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { done <- c.Watch(ctx, func() { calls <- struct{}{} }) }()
	within := func(what string, ch <-chan struct{}) {
		t.Helper()
		select {
		case <-ch:
		case <-time.After(10 * time.Second):
			t.Fatal("no call: " + what)
		}
	}
	within("the stream stands", calls)
	next <- struct{}{}
	within("a network was created", calls)
	next <- struct{}{}
	if err := <-done; err == nil || !strings.Contains(err.Error(), "watch events") {
		t.Errorf("a broken stream: %v", err)
	}
	cancel()
	if err := c.Watch(ctx, func() {}); err != nil {
		t.Errorf("ended by the context: %v", err)
	}
}

// A container that has got its own stop signal is no longer ready, until it ends or starts again; one that has got another signal is as before.
func TestStops(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.sock")
	next, slow, ended := make(chan string), make(chan struct{}), make(chan struct{})
	api(t, path, map[string]http.HandlerFunc{
		"GET /events": func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			for event := range next {
				fmt.Fprintln(w, event)
				w.(http.Flusher).Flush()
			}
		},
		"GET /containers/json":    text(200, `[{"Id":"c1","State":"running"},{"Id":"c2","State":"running"},{"Id":"c3","State":"running"}]`),
		"GET /containers/c1/json": text(200, `{"Id":"c1","Config":{"StopSignal":"SIGQUIT"}}`),
		"GET /containers/c2/json": text(200, `{"Id":"c2","Config":{}}`),
		"GET /containers/c3/json": func(w http.ResponseWriter, _ *http.Request) { // whose end is heard before the answer
			close(slow)
			<-ended
			text(200, `{"Id":"c3","Config":{}}`)(w, nil)
		},
	})
	c := New("unix://" + path)
	calls := make(chan struct{}, 10)
	go func() { _ = c.Watch(t.Context(), func() { calls <- struct{}{} }) }()
	heard := func() {
		t.Helper()
		select {
		case <-calls:
		case <-time.After(10 * time.Second):
			t.Fatal("no call")
		}
	}
	defer close(next)
	heard()
	unready := func() string {
		t.Helper()
		list, err := c.Containers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, one := range list {
			if one.Unready {
				ids = append(ids, one.ID)
			}
		}
		return strings.Join(ids, " ")
	}
	tell := func(id, action, signal string) {
		next <- fmt.Sprintf(`{"Type":"container","Action":%q,"Actor":{"ID":%q,"Attributes":{"signal":%q}}}`, action, id, signal)
	}
	for _, signal := range []string{"1", "15"} { // which are not c1's, change nothing, and are not told
		tell("c1", "kill", signal)
	}
	tell("c2", "kill", "9")
	for _, step := range []struct{ id, action, signal, unready string }{
		{"c1", "kill", "3", "c1"}, {"c2", "kill", "15", "c1 c2"}, {"c2", "die", "", "c1"}, {"c1", "start", "", ""},
	} {
		tell(step.id, step.action, step.signal)
		heard()
		if got := unready(); got != step.unready {
			t.Errorf("after %v: not ready are %q", step, got)
		}
	}
	tell("c3", "kill", "15")
	<-slow
	tell("c3", "start", "")
	heard()
	close(ended)
	tell("c1", "kill", "3") // is answered later, most likely
	heard()
	if got := unready(); got != "c1" {
		t.Errorf("a container that has started again before its stop was known: not ready are %q", got)
	}
	for name, want := range map[string]int{"": 15, "SIGQUIT": 3, "winch": 28, "3": 3, "SIGRTMIN+3": 37, "RTMIN": 34, "SIGNAL": 0, "RTMIN-x": 0} {
		if got := signalOf(name); got != want {
			t.Errorf("signal %q is %d, and not %d", name, got, want)
		}
	}
}

func TestMapsIPv4(t *testing.T) {
	for version, want := range map[string]bool{
		"": false, "dev": false, "20.10.24+dfsg1": false, "26.1.5": false, "27.5.1": false,
		"28.0.0": true, "28.5.2+dfsg1": true, "29.0.0-rc.1": true, "29.1.0": false, "30.0.0": false,
	} {
		if got := (Engine{Version: version}).MapsIPv4(); got != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}
