package plugin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/socket"
)

type echo struct{ Text string }

// serve starts a Server with some methods and returns a client for it.
func serve(t *testing.T) (post func(path, body string) (int, string), stop func() error, path string) {
	t.Helper()
	s := New(slog.New(slog.DiscardHandler))
	Handle(s, Network, "Echo", func(_ context.Context, r *echo) (*echo, error) { return r, nil })
	Handle(s, Network, "Fail", func(context.Context, *echo) (*echo, error) { return nil, errors.New("no such thing") })
	Handle(s, IPAM, "Fail", func(context.Context, *echo) (*echo, error) { return nil, errors.New("no such thing") })
	Handle(s, IPAM, "Panic", func(context.Context, *echo) (*echo, error) { panic("oh") })
	Handle(s, Network, "Slow", func(ctx context.Context, _ *echo) (*echo, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	HandleNoBody(s, Network, "GetCapabilities", func(context.Context) (*echo, error) { return &echo{"caps"}, nil })
	return start(t, s)
}

// start runs s on a real unix socket.
func start(t *testing.T, s *Server) (post func(path, body string) (int, string), stop func() error, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "p.sock")
	l, err := socket.Listen(t.Context(), path, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(cancel)
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", path)
	}}}
	post = func(method, body string) (int, string) {
		resp, err := client.Post("http://plugin/"+method, "application/vnd.docker.plugins.v1.2+json", strings.NewReader(body))
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, strings.TrimSpace(string(b))
	}
	return post, func() error { cancel(); return <-done }, path
}

// A call that Docker waits for is named before it ends, since it may never end.
func TestLateCallIsNamed(t *testing.T) {
	said, log := io.Pipe()
	s := New(slog.New(slog.NewTextHandler(log, nil)))
	s.late = time.Millisecond
	Handle(s, Network, "Slow", func(ctx context.Context, _ *echo) (*echo, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	post, stop, _ := start(t, s)
	go post("NetworkDriver.Slow", `{"Text": "eth0"}`)
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil || !strings.Contains(line, "NetworkDriver.Slow") || !strings.Contains(line, "eth0") {
		t.Errorf("the log says %q, %v", line, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestNoCallIsForEver: what a call waits for may never come, and Docker is told.
func TestNoCallIsForEver(t *testing.T) {
	s := New(slog.New(slog.DiscardHandler))
	s.patience = time.Millisecond
	Handle(s, Network, "Hung", func(ctx context.Context, _ *echo) (*echo, error) {
		<-ctx.Done()
		return nil, fmt.Errorf("wait for the switch: %w", ctx.Err())
	})
	post, _, _ := start(t, s)
	if _, got := post("NetworkDriver.Hung", `{"Text": "eth0"}`); got != `{"Err":"wait for the switch: context deadline exceeded"}` {
		t.Error(got)
	}
}

func TestReplies(t *testing.T) {
	post, _, _ := serve(t)
	for _, c := range []struct {
		method, body string
		status       int
		want         string // a part of the reply
	}{
		{"Plugin.Activate", "", 200, `{"Implements": ["NetworkDriver", "IpamDriver"]}`},
		{"NetworkDriver.GetCapabilities", "", 200, `{"Text":"caps"}`},
		{"NetworkDriver.GetCapabilities", "null", 200, `{"Text":"caps"}`},
		{"NetworkDriver.Echo", `{"Text":"a","New":{"x":[1]}}`, 200, `{"Text":"a"}`},
		{"NetworkDriver.Echo", "", 400, `{"Err":"NetworkDriver.Echo: request body is empty`},
		{"NetworkDriver.Echo", " \n", 400, `is empty`},
		{"NetworkDriver.Echo", `{"Text":1}`, 400, `{"Err":"NetworkDriver.Echo: request body is malformed`},
		{"NetworkDriver.Echo", `{"Text":"a"} x`, 400, `malformed`},
		{"NetworkDriver.Echo", `{"Text":`, 400, `malformed`},
		{"NetworkDriver.Echo", `["a"]`, 400, `not a JSON object`},
		{"NetworkDriver.Echo", `null`, 400, `not a JSON object`},
		{"NetworkDriver.Echo", `{"Text":"` + strings.Repeat("a", MaxBody) + `"}`, 400, `larger than 67108864 bytes`},
		{"NetworkDriver.Fail", `{}`, 200, `{"Err":"no such thing"}`},
		{"IpamDriver.Fail", `{}`, 200, `{"Error":"no such thing"}`},
		{"IpamDriver.Panic", `{}`, 200, `{"Error":"IpamDriver.Panic: internal error: oh`},
		{"NetworkDriver.Nothing", `{}`, 404, ``},
		{"VolumeDriver.Create", `{}`, 404, ``},
	} {
		status, got := post(c.method, c.body)
		if status != c.status || !strings.Contains(got, c.want) {
			t.Errorf("%s %.40s: %d %.200s, want %d %s", c.method, c.body, status, got, c.status, c.want)
		}
	}
}

func TestStop(t *testing.T) {
	post, stop, _ := serve(t)
	slow := make(chan string)
	go func() { _, got := post("NetworkDriver.Slow", `{}`); slow <- got }()
	time.Sleep(50 * time.Millisecond) // to let it arrive; if it does not, the dial fails below and says so
	start := time.Now()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if got := <-slow; !strings.Contains(got, "context canceled") {
		t.Errorf("a running call got %q", got)
	}
	if took := time.Since(start); took > 5*stopGrace {
		t.Errorf("stopped after %s", took)
	}
	if status, _ := post("Plugin.Activate", ""); status != 0 {
		t.Error("answers after it has stopped")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{`{}`, ``, `{"A":{"B":[1,"x",null]}}`, `{"A":1}{`, `[`, "{\"A\":\"\xff\"}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var req map[string]any
		if err := parse(body, &req); err == nil && !json.Valid(body) {
			t.Errorf("accepted %q", body)
		}
	})
}
