package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/host/socket"
	"github.com/grapevine-net/grapevine/ui"
)

// pageOf runs `grapevine ui` with the handlers as the agent (nil: there is none), and is what asks the page, and what
// presses Enter and returns the next address.
func pageOf(t *testing.T, h *api.Handlers) (ask func(question string) (int, string), enter func() string) {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	running := 1
	if h != nil {
		listener, err := socket.Listen(ctx, filepath.Join(dir, "grapevine.sock"), 0o700)
		if err != nil {
			t.Fatal(err)
		}
		running++
		go func() { ended <- api.Serve(ctx, listener, *h) }()
	}
	keys, press := io.Pipe()
	read, out := io.Pipe()
	root := newRoot()
	root.SetIn(keys)
	root.SetOut(out)
	root.SetArgs([]string{"--run=" + dir, "ui", "--page-port=0"})
	go func() {
		err := root.ExecuteContext(ctx)
		out.CloseWithError(err)
		ended <- err
	}()
	lines := bufio.NewReader(read)
	address := func() string {
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if m := regexp.MustCompile(`^Open (http://127\.0\.0\.1:\d+/)#([A-Z2-7]{26,})\n$`).FindStringSubmatch(line); m != nil {
				_, _ = lines.ReadString('\n')
				return m[1] + " " + m[2]
			}
			t.Logf("%q", line)
		}
	}
	t.Cleanup(func() {
		cancel()
		press.Close()
		for range running {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	base, token, _ := strings.Cut(address(), " ")
	session := ""
	say := func(method, path, bearer string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, base+"/"+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+bearer)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	status, body := say("POST", "session", token)
	var got struct{ Session string }
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 {
		t.Fatal(status, body, err)
	}
	session = got.Session
	return func(question string) (int, string) { return say("GET", "v1/"+question, session) }, func() string {
		if _, err := io.WriteString(press, "\n"); err != nil {
			t.Fatal(err)
		}
		next := address()
		if strings.HasSuffix(next, token) || !strings.HasPrefix(next, base) {
			t.Errorf("Enter printed %s", next)
		}
		return next
	}
}

// TestUIAsksReadersOnly: all that the page asks is answered to who may look and not touch, as -o json prints it.
func TestUIAsksReadersOnly(t *testing.T) {
	node := api.Node{ID: "1", Name: "host1", Self: true, Alive: true, VTEP: netip.MustParseAddr("10.0.0.1")}
	h := api.Handlers{
		Status: func(context.Context) (api.Status, error) {
			return api.Status{Name: "host1", Process: api.Process{Heap: 5}}, nil
		},
		Nodes:     func(context.Context) ([]api.Node, error) { return []api.Node{node}, nil },
		Networks:  func(context.Context) ([]api.Network, error) { return []api.Network{{Name: "blue"}}, nil },
		Endpoints: func(context.Context) ([]api.Endpoint, error) { return []api.Endpoint{{ID: "2", Name: "app"}}, nil },
		Ring:      func(context.Context) ([]api.Pool, error) { return []api.Pool{{Network: "blue"}}, nil },
		Flows:     func(context.Context) ([]api.Flow, error) { return nil, nil },
		Policies:  func(context.Context) (api.Policies, error) { return api.Policies{Policies: []api.Policy{}}, nil },
		Services: func(context.Context) ([]api.Service, error) {
			return []api.Service{{Network: "blue", Name: "web"}}, nil
		},
		Clients:  func(context.Context) ([]api.NetworkClient, error) { return []api.NetworkClient{{Name: "laptop"}}, nil },
		Egresses: func(context.Context) ([]api.Egress, error) { return []api.Egress{{Name: "mail"}}, nil },
		Doctor:   func(context.Context) (api.Diagnosis, error) { return api.Diagnosis{Name: "host1"}, nil },
		Traffic: func(_ context.Context, of api.TrafficOf) (api.Traffic, error) {
			return api.Traffic{Hosts: []api.TrafficHost{{Name: "all hosts: " + strconv.FormatBool(of.All)}}}, nil
		},
		Explain: func(_ context.Context, r api.ExplainRequest) (api.Explanation, error) {
			return api.Explanation{From: api.Peer{Name: r.From, Host: "host1"}, To: api.Peer{Name: r.To, Host: "host1"}, What: "5432/tcp", Egress: api.Decision{Allowed: true}, Ingress: api.Decision{Allowed: true}}, nil
		},
	}.Readers()
	ask, enter := pageOf(t, &h)
	for question := range questions(nil) {
		path := question
		if question == "trace" {
			path += "?from=app&to=db%3A5432"
		}
		if status, body := ask(path); status != 200 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	for question, want := range map[string]string{"nodes": `"name":"host1"`, "trace?from=app&to=db%3A5432": "Nothing was found in the way from app to db.", "kinds": `"code":"host-silent"`, "services": `"name":"web"`, "clients": `"name":"laptop"`, "egresses": `"name":"mail"`, "traffic": "all hosts: false", "traffic?all=true": "all hosts: true"} {
		if _, body := ask(question); !strings.Contains(body, want) {
			t.Errorf("%s: no %s in %s", question, want, body)
		}
	}
	if _, body := ask("status"); strings.Contains(body, `"heap":5`) {
		t.Error("the status differs each time it is asked")
	}
	if status, body := ask("trace?from=app&to=db%3Ax"); status != 502 || !strings.Contains(body, "has no port") {
		t.Errorf("%d %s", status, body)
	}
	enter()
}

// TestUIWithoutAgent: the page says what is wrong when nothing else does.
func TestUIWithoutAgent(t *testing.T) {
	ask, _ := pageOf(t, nil)
	if status, body := ask("status"); status != 200 || !strings.Contains(body, `"code":"agent-silent"`) {
		t.Errorf("%d %s", status, body)
	}
	if status, body := ask("nodes"); status != 502 || !strings.Contains(body, "no agent answers") {
		t.Errorf("%d %s", status, body)
	}
}

// TestUIFlooded: other users of the host, who open connections and say nothing or half of something, do not keep the page's own browser
// out, and cost so many goroutines and no more.
func TestUIFlooded(t *testing.T) {
	ask, enter := pageOf(t, nil)
	base, _, _ := strings.Cut(enter(), " ")
	at := strings.Trim(strings.TrimPrefix(base, "http://"), "/")
	before := runtime.NumGoroutine()
	for i := range 600 {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = c.Write([]byte([]string{"", "GET / HTTP/1.1\r\nX: ", "POST /session HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"}[i%3])) // it may be closed already
	}
	for range 3 {
		if status, _ := ask("status"); status != 200 {
			t.Errorf("the page's own browser is told %d", status)
		}
	}
	for end := time.Now().Add(4 * time.Second); runtime.NumGoroutine() > before+uiConnections+10; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

// TestUIEndsWithItsTerminal: a page whose terminal, or whoever started it, is gone does not listen on; one that was started without goes on.
func TestUIEndsWithItsTerminal(t *testing.T) {
	serve := func(in io.Reader) (ended chan error) {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ended = make(chan error, 1)
		go func() { ended <- serveUI(ctx, l, ui.New(nil), in, io.Discard) }()
		return ended
	}
	in, parent, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ended := serve(in)
	parent.Close()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("it goes on without whoever started it")
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	select {
	case err := <-serve(null):
		t.Errorf("it ends at once without a terminal: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
}
