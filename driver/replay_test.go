package driver

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/host/plugin"
	"github.com/grapevine-net/grapevine/host/socket"
)

// TestEngine sends what a real engine has sent, byte for byte, over a real socket,
// and compares what it gets. Names are learnt after each CreateNetwork, as the
// watcher did.
func TestEngine(t *testing.T) {
	g := newRig(t, "unix:///nonexistent")
	post := servePlugin(t, g)
	names := []string{"blue", "green", "n2", "inter"}
	session, err := os.ReadFile("testdata/engine-20.10.txt")
	check(t, err)
	for i, line := range strings.Split(strings.TrimSpace(string(session)), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		call, want, _ := strings.Cut(line, " -> ")
		path, body, _ := strings.Cut(call, " ")
		if got := post(path, body); got != want {
			t.Fatalf("line %d: %s %s\n got %s\nwant %s", i+1, path, body, got, want)
		}
		if path == "/NetworkDriver.CreateNetwork" && want == "200 {}" {
			_, id, _ := strings.Cut(body, `"NetworkID":"`)
			_, err := g.networks.learnName(docker.Network{ID: id[:64], Name: names[0]})
			check(t, err)
			names = names[1:]
		}
	}
	if got := g.machine.String(); got != "" {
		t.Errorf("left over:\n%s", got)
	}
	if n := len(g.core.alloc.Leases()); n != 0 {
		t.Errorf("%d leases left over", n)
	}
	if got := g.records(); got != "" {
		t.Errorf("records left over:\n%s", got)
	}
}

func servePlugin(t *testing.T, g *rig) (post func(path, body string) string) {
	t.Helper()
	s := plugin.New(slog.New(slog.DiscardHandler))
	g.Register(s)
	g.ipam.Register(s)
	path := filepath.Join(t.TempDir(), "p.sock")
	l, err := socket.Listen(t.Context(), path, 0o755)
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", path)
	}}}
	t.Cleanup(func() { client.CloseIdleConnections(); cancel(); <-done })
	return func(path, body string) string {
		resp, err := client.Post("http://plugin"+path, "", strings.NewReader(body))
		check(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		check(t, err)
		return resp.Status[:3] + " " + strings.TrimSpace(string(b))
	}
}
