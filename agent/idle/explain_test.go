package idle

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/host/installed"
	"github.com/grapevine-net/grapevine/host/socket/sockettest"
)

// TestExplain: Docker takes the plugin for one that works, every call fails with the
// cause, and so does the command line, which is put in its place.
func TestExplain(t *testing.T) {
	dir := t.TempDir()
	cfg := config.Config{State: dir, Run: dir, PluginSocket: filepath.Join(dir, "p.sock")}
	cause := errors.New("no gossip key")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Explain(ctx, cfg, "1", cause, slog.New(slog.DiscardHandler)) }()
	cli := api.NewClient(cfg.APISocket(), cfg.ReadSocket())
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err := cli.Status(ctx); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatalf("the agent's socket does not answer within ten seconds: %v", err)
		}
	}

	sockettest.Docker(t, cfg.PluginSocket, map[string]string{
		"Plugin.Activate":                    "IpamDriver",
		"NetworkDriver.GetCapabilities":      `"Scope":"local"`,
		"IpamDriver.GetCapabilities":         "RequiresRequestReplay",
		"IpamDriver.RequestPool":             `"Error":"grapevine does not run on this host: no gossip key"`,
		"NetworkDriver.CreateEndpoint":       `"Err":"grapevine does not run on this host: no gossip key"`,
		"NetworkDriver.SomethingOfLater":     "404",
		"IpamDriver.GetDefaultAddressSpaces": "LocalDefaultAddressSpace",
	})
	if s, err := cli.Status(ctx); err != nil || len(s.Problems) != 1 || !strings.Contains(s.Problems[0].What, "no gossip key") {
		t.Errorf("status: %+v, %v", s, err)
	}
	if _, err := cli.Nodes(ctx); err == nil || !strings.Contains(err.Error(), "no gossip key") {
		t.Errorf("nodes: %v", err)
	}
	if _, err := cli.Leave(ctx, api.LeaveRequest{}); err == nil || !strings.Contains(err.Error(), "no gossip key") {
		t.Errorf("leave: %v", err)
	}
	for _, route := range api.Routes() {
		resp, body := ask(t, cfg.APISocket(), route)
		answered := route == "GET /healthz" || route == "GET /v1/status" || route == "GET /v1/doctor"
		if want := http.StatusServiceUnavailable; !answered && (resp != want || !strings.Contains(body, "no gossip key")) {
			t.Errorf("%s: %d %s, want %d and the reason", route, resp, body, want)
		} else if answered && resp != http.StatusOK {
			t.Errorf("%s: %d %s", route, resp, body)
		}
	}
	if code, body := ask(t, cfg.APISocket(), "POST /v1/of-later"); code != http.StatusServiceUnavailable || !strings.Contains(body, "no gossip key") {
		t.Errorf("a path of a later version: %d %s", code, body)
	}
	if info, err := os.Stat(filepath.Join(dir, installed.ProgramFile)); err != nil || info.Size() == 0 {
		t.Errorf("the command line: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// ask sends a request, "METHOD /path", to the agent's socket.
func ask(t *testing.T, socket, route string) (code int, body string) {
	t.Helper()
	status, body := sockettest.Request(t, socket, route)
	code, _ = strconv.Atoi(status[:3])
	return code, body
}
