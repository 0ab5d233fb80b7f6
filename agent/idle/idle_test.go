package idle

import (
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/agent/sockets"
	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/host/installed"
	"github.com/grapevine-net/grapevine/host/socket/sockettest"
	"github.com/grapevine-net/grapevine/membership"
	"github.com/grapevine-net/grapevine/membership/identity"
)

// TestRest: an agent whose host has left answers what Docker removes, at once, makes nothing
// and says why, and ends its rest when it is told.
func TestRest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := config.Config{State: dir, Run: filepath.Join(dir, "run"), PluginSocket: filepath.Join(dir, "p.sock"), Docker: "unix://" + dir + "/none"}
	open, err := sockets.Make(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	ifLeft := func() (bool, error) {
		log := slog.New(slog.DiscardHandler)
		here, err := installed.Find(cfg, docker.New(cfg.Docker), log)
		if err != nil {
			return false, err
		}
		return IfLeft(t.Context(), Config{Settings: cfg, Version: "1", Log: log, Installed: here, Ready: func() {}}, open)
	}
	if rested, err := ifLeft(); rested || err != nil {
		t.Fatalf("a host that has not left rests: %v, %v", rested, err)
	}
	if err := (identity.Left{Since: time.Now(), Settings: membership.Told(cfg, "")}).Save(dir); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { _, err := ifLeft(); done <- err }()

	sockettest.Docker(t, cfg.PluginSocket, map[string]string{
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
	})
	for _, route := range api.Routes() {
		if route == "POST /v1/join" {
			continue
		}
		if _, body := ask(t, cfg.APISocket(), route); route != "GET /healthz" && !strings.Contains(body, "this host has left the cluster") && !strings.Contains(body, "This host has left the cluster") {
			t.Errorf("%s: %s", route, body)
		}
	}
	if text, err := api.NewClient(cfg.APISocket(), cfg.ReadSocket()).Join(t.Context()); err != nil || !strings.Contains(text.Text, "begins a cluster of its own") {
		t.Errorf("join: %v, %v", text, err)
	}
	if err := <-done; !errors.Is(err, ErrWanted) {
		t.Errorf("the rest ended by %v", err)
	}
	if rested, err := ifLeft(); rested || err != nil {
		t.Errorf("after the join it rests: %v, %v", rested, err)
	}
}

// TestRemains: status and leave of a host that has left say what of it is still there, until it is cleaned up.
func TestRemains(t *testing.T) {
	dir := t.TempDir()
	cfg := config.Config{State: dir, Run: filepath.Join(dir, "run"), PluginSocket: filepath.Join(dir, "p.sock"), Docker: "unix://" + dir + "/none"}
	log := slog.New(slog.DiscardHandler)
	if err := (identity.Left{Since: time.Now(), Settings: membership.Told(cfg, ""), Remains: "delete gvbr0: device busy"}).Save(dir); err != nil {
		t.Fatal(err)
	}
	left, _, err := membership.AtRest(cfg, "", log)
	if err != nil {
		t.Fatal(err)
	}
	h := (&resting{Config{Settings: cfg, Version: "1", Log: log}, left}).handlers(nil)
	s, err := h.Status(t.Context())
	if err != nil || len(s.Problems) != 1 || !strings.Contains(s.Problems[0].What, "and not everything that grapevine made here is removed: delete gvbr0: device busy") || !strings.Contains(s.Problems[0].Do, "grapevine cleanup") {
		t.Errorf("status: %+v, %v", s.Problems, err)
	}
	if _, err := h.Leave(t.Context(), api.LeaveRequest{}); err == nil || !strings.Contains(err.Error(), "delete gvbr0: device busy") {
		t.Errorf("leave: %v", err)
	}
}

// TestToldAnew: a host that has left rests as long as nobody tells it anything new.
func TestToldAnew(t *testing.T) {
	dir := t.TempDir()
	cfg, log := config.Config{State: dir, Keys: [][]byte{make([]byte, 32)}}, slog.New(slog.DiscardHandler)
	for _, told := range []struct {
		by     string
		change func(*config.Config)
	}{
		{"another plugin", func(*config.Config) {}},
		{"", func(c *config.Config) { c.Join = append(c.Join, netip.MustParseAddrPort("127.0.100.1:17946")) }},
		{"", func(c *config.Config) { c.Keys = nil }},
	} {
		if err := (identity.Left{Settings: membership.Told(cfg, "")}).Save(dir); err != nil {
			t.Fatal(err)
		}
		if _, rest, err := membership.AtRest(cfg, "", log); !rest || err != nil {
			t.Errorf("with the same settings: rest %v, %v", rest, err)
		}
		told.change(&cfg)
		if _, rest, err := membership.AtRest(cfg, told.by, log); rest || err != nil {
			t.Errorf("told %+v: rest %v, %v", told, rest, err)
		}
	}
}
