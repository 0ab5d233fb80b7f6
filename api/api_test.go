package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-net/grapevine/host/socket"
)

// serve runs the handlers on a socket until the test ends.
func serve(t *testing.T, h Handlers) (client *Client, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "run", "grapevine.sock")
	listener, err := socket.Listen(t.Context(), path, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, listener, h) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return NewClient(path), path
}

func TestValuesArrive(t *testing.T) {
	pools := []Pool{{Network: "blue", Prefix: netip.MustParsePrefix("10.128.0.0/22"), Shares: []Share{
		{Host: "h1", Node: "0123456789abcdef", Blocks: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/23")}, Part: 0.5},
	}}}
	status := Status{Node: "0123456789abcdef", VTEP: netip.MustParseAddr("10.0.0.1"), Since: time.Unix(1, 0).UTC(), Problems: []Problem{{HostSilent, Fault, "a", "b"}}}
	client, _ := serve(t, Handlers{
		Status: func(context.Context) (Status, error) { return status, nil },
		Ring:   func(context.Context) ([]Pool, error) { return pools, nil },
		Forget: func(_ context.Context, r ForgetRequest) (Done, error) { return Done{"forgot " + r.Hosts[0]}, nil },
	})
	equal := cmp.Options{cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })}
	if got, err := client.Ring(t.Context()); err != nil || !cmp.Equal(got, pools, equal) {
		t.Errorf("ring: %+v, %v", got, err)
	}
	if got, err := client.Status(t.Context()); err != nil || !cmp.Equal(got, status, equal) {
		t.Errorf("status: %+v, %v", got, err)
	}
	if got, err := client.Forget(t.Context(), ForgetRequest{[]string{"h2"}}); err != nil || got.Text != "forgot h2" {
		t.Errorf("forget: %+v, %v", got, err)
	}
}

// TestTrafficArrives: who talks to whom is said a connection at a time.
func TestTrafficArrives(t *testing.T) {
	at := time.Unix(1_750_000_000, 0).UTC()
	for n := range 3 {
		want := Traffic{Hosts: []TrafficHost{{Name: "<host1>", Since: at, Lost: 3}, {Name: "host2", Error: "it does not answer"}}, Connections: []Connection{}}
		for i := range n {
			want.Connections = append(want.Connections, Connection{First: at, Last: at, Proto: "tcp", State: "open", Packets: 1, From: TrafficEnd{Name: "app", Addr: netip.MustParseAddr("10.128.0.2"), Port: uint16(i)}})
		}
		client, _ := serve(t, Handlers{Traffic: func(_ context.Context, of TrafficOf) (Traffic, error) {
			if !of.All {
				return Traffic{}, Errorf(http.StatusConflict, "this host alone")
			}
			return want, nil
		}})
		got, err := client.Traffic(t.Context(), TrafficOf{All: true})
		opt := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
		if err != nil || !cmp.Equal(got, want, opt) {
			t.Errorf("%v: %s", err, cmp.Diff(want, got, opt))
		}
		if _, err := client.Traffic(t.Context(), TrafficOf{}); err == nil || err.Error() != "this host alone" {
			t.Errorf("an error arrives as %v", err)
		}
	}
}

// TestTrafficIsAskedFor: what is wanted arrives, and what is wanted of a connection holds for both of its directions.
func TestTrafficIsAskedFor(t *testing.T) {
	app, db := TrafficEnd{Name: "app", Network: "blue", Addr: netip.MustParseAddr("10.128.0.2"), Port: 40000}, TrafficEnd{Name: "db", Network: "red", Addr: netip.MustParseAddr("10.129.0.2"), Port: 80}
	var asked TrafficOf
	client, _ := serve(t, Handlers{Traffic: func(_ context.Context, of TrafficOf) (Traffic, error) {
		asked = of
		return Traffic{}, nil
	}})
	for _, tt := range []struct {
		of  TrafficOf
		has bool
	}{
		{TrafficOf{}, true}, {TrafficOf{All: true, Ends: []string{"app"}}, true}, {TrafficOf{Ends: []string{"blue/app", "10.129.0.2"}}, true}, {TrafficOf{Ends: []string{"red/app"}}, false},
		{TrafficOf{Ends: []string{"db", "app"}, Network: "red", Port: 80}, true}, {TrafficOf{Ends: []string{"app", "app"}}, false}, {TrafficOf{Network: "green"}, false}, {TrafficOf{Port: 443}, false},
	} {
		if _, err := client.Traffic(t.Context(), tt.of); err != nil || !cmp.Equal(asked, tt.of) {
			t.Errorf("%v: %s", err, cmp.Diff(tt.of, asked))
		}
		if tt.of.Has(app, db) != tt.has || tt.of.Has(db, app) != tt.has {
			t.Errorf("%+v: not %v", tt.of, tt.has)
		}
	}
	if _, err := client.Traffic(t.Context(), TrafficOf{Ends: []string{"a", "b", "c"}}); err == nil {
		t.Error("three ends")
	}
}

func TestErrorsArrive(t *testing.T) {
	client, _ := serve(t, Handlers{
		Nodes: func(context.Context) ([]Node, error) { return nil, errors.New("no ring yet") },
		Leave: func(context.Context, LeaveRequest) (Done, error) {
			return Done{}, &Error{http.StatusConflict, "two containers are attached"}
		},
	})
	var e *Error
	if _, err := client.Nodes(t.Context()); !errors.As(err, &e) || e.Status != 500 || e.Message != "no ring yet" {
		t.Errorf("nodes: %v", err)
	}
	if _, err := client.Leave(t.Context(), LeaveRequest{}); !errors.As(err, &e) || e.Status != 409 || e.Message != "two containers are attached" {
		t.Errorf("leave: %v", err)
	}
}

func TestBadRequests(t *testing.T) {
	client, _ := serve(t, Handlers{Forget: func(context.Context, ForgetRequest) (Done, error) {
		t.Error("a bad request reached the agent")
		return Done{}, nil
	}})
	for _, tt := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/v1/forget", "", 400},
		{"POST", "/v1/forget", `{"hosts":1}`, 400},
		{"POST", "/v1/forget", `{"hots":["h2"]}`, 400},
		{"POST", "/v1/forget", `{"hosts":["` + strings.Repeat("x", maxBody) + `"]}`, 400},
		{"GET", "/v1/forget", "", 404},
		{"GET", "/v2/status", "", 404},
	} {
		request, _ := http.NewRequestWithContext(t.Context(), tt.method, "http://agent"+tt.path, strings.NewReader(tt.body))
		response, err := client.http.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != tt.status || !strings.Contains(string(body), `"error"`) {
			t.Errorf("%s %s %.20s: %d %s", tt.method, tt.path, tt.body, response.StatusCode, body)
		}
	}
}

func TestDeadAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "grapevine.sock")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	if _, err := NewClient(path).Status(t.Context()); err == nil || !strings.Contains(err.Error(), "is it running?") {
		t.Errorf("status of a dead agent: %v", err)
	}
}

func TestNoAgent(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "absent.sock")
	_, err := NewClient(socket).Status(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no agent answers at "+socket+": is it running?") {
		t.Errorf("status without an agent: %v", err)
	}
}

// TestReadersChangeNothing: of all that an agent answers, who may only look gets what changes nothing and has
// no key in it, and the others' reason otherwise.
func TestReadersChangeNothing(t *testing.T) {
	may := map[string]bool{"status": true, "nodes": true, "networks": true, "endpoints": true, "ring": true, "flows": true, "doctor": true, "ping": true, "policies": true, "policies/explain": true}
	asked := false
	all := Handlers{
		Status: func(context.Context) (Status, error) { return Status{}, nil },
		Leave:  func(context.Context, LeaveRequest) (Done, error) { asked = true; return Done{}, nil },
		Backup: func(context.Context, io.Writer) error { asked = true; return nil },
		Nodes:  func(context.Context) ([]Node, error) { return nil, nil },
	}
	_, path := serve(t, all.Readers())
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	for _, route := range Routes() {
		method, at, _ := strings.Cut(route, " ")
		verb := strings.TrimPrefix(at, "/v1/")
		if at == "/healthz" || at == "/metrics" || may[verb] {
			continue
		}
		request, _ := http.NewRequest(method, "http://agent"+at, strings.NewReader("{}"))
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s", route, response.Status)
		}
	}
	if asked {
		t.Error("a handler for root was asked")
	}
	if _, err := NewClient(path).Nodes(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := NewClient(path).JoinCommand(t.Context()); err == nil || !strings.Contains(err.Error(), "that is for root") {
		t.Errorf("join-command: %v", err)
	}
	absent := Handlers{Absent: &Error{http.StatusServiceUnavailable, "the agent does not run"}}
	if got := absent.Readers().Absent.Error(); got != "the agent does not run" {
		t.Errorf("an agent that cannot run: %s", got)
	}
}
