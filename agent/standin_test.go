package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/host/installed"
	"github.com/grapevine-net/grapevine/host/plugin"
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
	eventually(t, "the agent's socket answers", func() bool { _, err := cli.Status(ctx); return err == nil })

	askDocker(t, cfg.PluginSocket, map[string]string{
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

// swarmCalls are those of Swarm's managers, which ask drivers of global scope alone.
var swarmCalls = []string{"AllocateNetwork", "FreeNetwork", "DiscoverNew", "DiscoverDelete"}

// TestStandinsKnowAllCalls: what the drivers answer Docker is answered as well by who stands in for them, and where a
// host has left.
func TestStandinsKnowAllCalls(t *testing.T) {
	registered := regexp.MustCompile(`plugin\.Handle\(s, plugin\.(Network|IPAM), "(\w+)"`)
	drivers := map[string]plugin.Driver{"Network": plugin.Network, "IPAM": plugin.IPAM}
	var found int
	for _, file := range []string{"../driver/calls.go", "../ipam/driver.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range registered.FindAllStringSubmatch(string(text), -1) {
			found++
			d := drivers[m[1]]
			if !slices.Contains(slices.Concat(makingCalls[d], removalCalls[d], swarmCalls), m[2]) {
				t.Errorf("%s.%s, of %s, is in neither makingCalls nor removalCalls", d, m[2], file)
			}
		}
	}
	if found < 15 {
		t.Errorf("%d calls were found: their form has changed", found)
	}
}

// ask sends a request, "METHOD /path", to the agent's socket.
func ask(t *testing.T, socket, route string) (code int, body string) {
	t.Helper()
	status, body := request(t, socket, route)
	code, _ = strconv.Atoi(status[:3])
	return code, body
}

// request sends a request, "METHOD /path", to a socket: the status is as "200 OK".
func request(t *testing.T, socket, route string) (status, body string) {
	t.Helper()
	cli := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	method, path, _ := strings.Cut(route, " ")
	request, err := http.NewRequestWithContext(t.Context(), method, "http://agent"+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := cli.Do(request)
	if err != nil {
		t.Fatalf("%s: %v", route, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s: %v", route, err)
	}
	return response.Status, string(text)
}

// askDocker makes Docker's calls to the plugin, each of which is to be answered with the status and the body
// that hold the text beside it.
func askDocker(t *testing.T, socket string, want map[string]string) {
	t.Helper()
	for method, want := range want {
		if status, body := request(t, socket, "POST /"+method); !strings.Contains(status+body, want) {
			t.Errorf("%s: %s %s", method, status, body)
		}
	}
}
