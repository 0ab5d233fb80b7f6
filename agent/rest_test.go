package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/membership/identity"
)

// TestLeftOnAFullDisk: the note that a host has left is there after its state has made room for it:
// else it would join again at the next boot.
func TestLeftOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, "16m")
	h := newHost(t, 1, dir, 1)
	defer h.gossip.Close()
	fill(t, dir)
	noted := h.noteLeft()
	if noted == nil {
		t.Fatal("the disk is not full")
	}
	if err := h.demolish(noted); err != nil {
		t.Error(err)
	}
	left, there, err := identity.LoadLeft(dir)
	if !there || err != nil || left.Node != h.id.Node {
		t.Errorf("the note: %+v, %v, %v", left, there, err)
	}
}

// TestLeaveWithoutAnEnd: a host whose leave failed on the way hands out nothing, and says so.
func TestLeaveWithoutAnEnd(t *testing.T) {
	t.Parallel()
	one := newHost(t, 1, t.TempDir(), 1, 2).run()
	two := newHost(t, 2, t.TempDir(), 1, 2).run()
	eventually(t, "host2 joins", func() bool { return two.member() && len(one.gossip.Alive()) == 1 })
	one.stop()
	if err := two.giveAway(t.Context(), false); err == nil || !two.alloc.Leaving() {
		t.Fatalf("it leaves, though its heir has just ended: %v", err)
	}
	if _, err := two.alloc.VNID(t.Context()); err == nil {
		t.Error("it hands out a VNID")
	}
	if what := two.whats(); !strings.Contains(what, "is leaving its cluster, and `grapevine leave` has not come to its end") {
		t.Errorf("it says: %s", what)
	}
}

// TestRest: an agent whose host has left answers what Docker removes, at once, makes nothing
// and says why, and ends its rest when it is told.
func TestRest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := config.Config{State: dir, Run: filepath.Join(dir, "run"), PluginSocket: filepath.Join(dir, "p.sock"), Docker: "unix://" + dir + "/none"}
	a := &Agent{cfg: cfg, version: "1", log: slog.New(slog.DiscardHandler)}
	open, err := openSockets(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer open.close()
	if rested, err := a.restIfLeft(t.Context(), open); rested || err != nil {
		t.Fatalf("a host that has not left rests: %v, %v", rested, err)
	}
	if err := (identity.Left{Since: time.Now(), Settings: a.told("")}).Save(dir); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { _, err := a.restIfLeft(t.Context(), open); done <- err }()

	docker := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", cfg.PluginSocket)
	}}}
	for method, want := range map[string]string{
		"Plugin.Activate":                           "IpamDriver",
		"NetworkDriver.GetCapabilities":             `"Scope":"local"`,
		"NetworkDriver.DeleteEndpoint":              "200 OK{}",
		"NetworkDriver.DeleteNetwork":               "200 OK{}",
		"NetworkDriver.Leave":                       "200 OK{}",
		"NetworkDriver.RevokeExternalConnectivity":  "200 OK{}",
		"IpamDriver.ReleaseAddress":                 "200 OK{}",
		"IpamDriver.ReleasePool":                    "200 OK{}",
		"NetworkDriver.CreateNetwork":               "this host has left the cluster: `grapevine join`",
		"NetworkDriver.Join":                        "this host has left the cluster",
		"IpamDriver.RequestPool":                    "this host has left the cluster",
		"NetworkDriver.ProgramExternalConnectivity": "this host has left the cluster",
	} {
		resp, err := docker.Post("http://plugin/"+method, "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.Contains(resp.Status+string(body), want) {
			t.Errorf("%s: %s %s, %v", method, resp.Status, body, err)
		}
	}
	for _, route := range api.Routes() {
		if route == "POST /v1/join" {
			continue
		}
		if _, body := ask(t, cfg.APISocket(), route); route != "GET /healthz" && !strings.Contains(body, "this host has left the cluster") && !strings.Contains(body, "This host has left the cluster") {
			t.Errorf("%s: %s", route, body)
		}
	}
	if text, err := api.NewClient(cfg.APISocket()).Join(t.Context()); err != nil || !strings.Contains(text.Text, "begins a cluster of its own") {
		t.Errorf("join: %v, %v", text, err)
	}
	if err := <-done; !errors.Is(err, errWanted) {
		t.Errorf("the rest ended by %v", err)
	}
	if rested, err := a.restIfLeft(t.Context(), open); rested || err != nil {
		t.Errorf("after the join it rests: %v, %v", rested, err)
	}
}

// TestToldAnew: a host that has left rests as long as nobody tells it anything new.
func TestToldAnew(t *testing.T) {
	dir := t.TempDir()
	a := &Agent{cfg: config.Config{State: dir, Keys: testKey}, log: slog.New(slog.DiscardHandler)}
	for _, told := range []struct {
		by     string
		change func(*config.Config)
	}{
		{"another plugin", func(*config.Config) {}},
		{"", func(c *config.Config) { c.Join = append(c.Join, address(t, 1)) }},
		{"", func(c *config.Config) { c.Keys = nil }},
	} {
		if err := (identity.Left{Settings: a.told("")}).Save(dir); err != nil {
			t.Fatal(err)
		}
		if _, rest, err := a.atRest(""); !rest || err != nil {
			t.Errorf("with the same settings: rest %v, %v", rest, err)
		}
		told.change(&a.cfg)
		if _, rest, err := a.atRest(told.by); rest || err != nil {
			t.Errorf("told %+v: rest %v, %v", told, rest, err)
		}
	}
}
