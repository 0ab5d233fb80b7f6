package metrics

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

func cookie(s pipeline.Stage, k pipeline.ObjectKind, object uint64) uint64 {
	return pipeline.Cookie{Stage: s, Kind: k, Object: object}.Pack()
}

func facts() Facts {
	node := "4f0c9a1e2b7d3c55"
	return Facts{
		Status: api.Status{
			Version: "1.0", Name: "nuc1", Node: node, Cluster: "9d2f", VTEP: netip.MustParseAddr("10.0.0.1"), OVS: "embedded", Datapath: "kernel",
			Since: time.Unix(1795652000, 0), FastPath: "rests: no room", Leases: 3, Refused: map[string]uint64{"bad-key": 2},
			Problems: []api.Problem{{Code: api.HostSilent}}, Kernel: &api.KernelDatapath{Hit: 10, Missed: 3, Lost: 1}, Names: api.Resolver{Answered: 5, Inside: 2},
		},
		Nodes: []api.Node{
			{Alive: true, Self: true}, {Alive: true, Doubtful: true}, {}, {Alive: true, Path: "ok"}, {Alive: true, Path: "lost to here"}, {Alive: true, Path: "large ones lost"}, {Alive: true, Path: "encrypted 20% lost to here"},
		},
		Networks: []api.Network{{Name: "shop"}, {Name: "ops"}},
		Endpoints: []api.Endpoint{
			{ID: "aa", Network: "shop", Here: true}, {ID: "bb", Network: "shop", Here: true}, {ID: "cc", Network: "ops"},
		},
		Pools: []api.Pool{
			{Network: "shop", Prefix: netip.MustParsePrefix("10.1.0.0/22"), Shares: []api.Share{
				{Node: node, Blocks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/23"), netip.MustParsePrefix("10.1.2.0/24")}}, {Node: "other", Blocks: []netip.Prefix{netip.MustParsePrefix("10.1.3.0/24")}},
			}},
			{Network: "shop", Prefix: netip.MustParsePrefix("fd00::/64"), Shares: []api.Share{{Node: node, Blocks: []netip.Prefix{netip.MustParsePrefix("fd00::/64")}}}},
		},
		Flows: []api.Flow{
			{Table: 20, Stage: "spoof-guard", Priority: 300, Match: "aa", Object: "endpoint aa", Actions: "goto_table:30", Packets: 7, Bytes: 700},
			{Table: 20, Stage: "spoof-guard", Priority: 300, Match: "bb", Object: "endpoint bb", Actions: "goto_table:30", Packets: 1, Bytes: 60},
			{Table: 70, Stage: "forwarding", Priority: 3000, Match: "aa", Object: "endpoint aa", Actions: "goto_table:75", Packets: 5, Bytes: 500},
			{Table: 30, Stage: "arp-responder", Priority: 300, Match: "arp", Object: "endpoint aa", Actions: "goto_table:35", Packets: 9},
			{Table: 20, Stage: "spoof-guard", Priority: 100, Match: "a", Cookie: cookie(pipeline.SpoofGuard, pipeline.KindEndpoint, 1), Object: "endpoint aa", Actions: "drop", Packets: 4},
			{Table: 80, Stage: "vnid-check", Cookie: cookie(pipeline.VNIDCheck, pipeline.KindDrop, uint64(pipeline.DropOtherNetwork)), Actions: "drop", Packets: 11},
		},
		Policies:    []string{"shop/db"},
		Connections: Connections{Open: 4, Ended: map[string]uint64{"answered": 6, "unanswered": 0}, Lost: 9},
	}
}

// scrape returns the text that Prometheus would read.
func scrape(t *testing.T, h http.Handler) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func wants(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if !strings.Contains(text, l+"\n") {
			t.Errorf("no line %s in\n%s", l, text)
		}
	}
}

func TestScrape(t *testing.T) {
	text := scrape(t, New(facts).Handler())
	wants(t, text,
		`grapevine_node_info{cluster="9d2f",datapath="kernel",name="nuc1",node="4f0c9a1e2b7d3c55",ovs="embedded",vtep="10.0.0.1"} 1`,
		`grapevine_start_time_seconds 1.795652e+09`, `grapevine_problems{code="host-silent",severity="error"} 1`, `grapevine_problems{code="disk-fails",severity="error"} 0`, `grapevine_leases 3`,
		`grapevine_hosts{state="alive"} 5`, `grapevine_paths{state="ok"} 1`, `grapevine_paths{state="silent"} 1`, `grapevine_paths{state="narrow"} 1`, `grapevine_paths{state="lossy"} 1`, `grapevine_paths{state="unknown"} 1`, `grapevine_hosts{state="doubtful"} 1`, `grapevine_hosts{state="dead"} 1`,
		`grapevine_gossip_refused_total{reason="bad-key"} 2`, `grapevine_gossip_refused_total{reason="replayed"} 0`,
		`grapevine_networks 2`, `grapevine_endpoints{network="shop"} 2`, `grapevine_endpoints{network="ops"} 0`,
		`grapevine_addresses_owned{network="shop"} 768`, `grapevine_addresses_owned{network="ops"} 0`,
		`grapevine_network_packets_total{direction="sent",network="shop"} 8`, `grapevine_network_bytes_total{direction="received",network="shop"} 500`,
		`grapevine_network_bytes_total{direction="sent",network="ops"} 0`,
		`grapevine_switch_up 1`, `grapevine_switch_flows{stage="spoof-guard"} 3`,
		`grapevine_drops_total{class="alien",reason="spoofed"} 4`, `grapevine_drops_total{class="meant",reason="other-network"} 11`,
		`grapevine_drops_total{class="alien",reason="wrong-vtep"} 0`, `grapevine_datapath_lookups_total{result="lost"} 1`,
		`grapevine_fastpath_state{state="resting"} 1`, `grapevine_fastpath_state{state="on"} 0`,
		`grapevine_connections_open 4`, `grapevine_connections_total{outcome="answered"} 6`, `grapevine_connections_total{outcome="unanswered"} 0`, `grapevine_traffic_lost_total 9`,
		`grapevine_dns_queries_total{outcome="answered"} 5`, `grapevine_dns_containers{served="inside"} 2`,
	)
	if !strings.Contains(text, "process_resident_memory_bytes") || !strings.Contains(text, "go_goroutines") {
		t.Error("what the process uses is not there")
	}
}

// TestLint: names, units and help as Prometheus' own linter wants them.
func TestLint(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(New(facts))
	complaints, err := testutil.GatherAndLint(r)
	if err != nil || len(complaints) > 0 {
		t.Errorf("%v, %v", complaints, err)
	}
}

// TestNothingFalls: flows go with their containers and come anew, and a silent switch tells nothing.
func TestNothingFalls(t *testing.T) {
	f := facts()
	h := New(func() Facts { return f }).Handler()
	sent := func() string { return `grapevine_network_packets_total{direction="sent",network="shop"} ` }
	wants(t, scrape(t, h), sent()+"8")
	f.Flows[0].Packets, f.Flows[0].Bytes = 10, 1000
	wants(t, scrape(t, h), sent()+"11")
	f.Flows[0].Packets, f.Flows[0].Bytes = 2, 200 // another agent's round, counted from 0
	wants(t, scrape(t, h), sent()+"13")
	all := f.Flows
	f.Flows, f.FlowsErr = nil, errors.New("no answer")
	wants(t, scrape(t, h), sent()+"13", "grapevine_switch_up 0", `grapevine_drops_total{class="alien",reason="spoofed"} 4`)
	f.Flows, f.FlowsErr = all[1:], nil // the container has gone
	wants(t, scrape(t, h), sent()+"13")
	f.Networks = f.Networks[1:] // and its network
	if text := scrape(t, h); strings.Contains(text, `network="shop"`) {
		t.Errorf("series of a network that is no more:\n%s", text)
	}
}

// TestManyNetworks: the label has so many values and no more; the rest is summed.
func TestManyNetworks(t *testing.T) {
	f := facts()
	for i := range 1000 {
		f.Networks = append(f.Networks, api.Network{Name: "n" + strings.Repeat("x", i)})
	}
	f.Endpoints = append(f.Endpoints, api.Endpoint{ID: "dd", Network: "n" + strings.Repeat("x", 999), Here: true}, api.Endpoint{ID: "ee", Network: "n\xff", Here: true})
	f.Networks = append(f.Networks, api.Network{Name: "n\xff"})
	text := scrape(t, New(func() Facts { return f }).Handler())
	if n := strings.Count(text, "\ngrapevine_endpoints{"); n != maxNetworks+1 {
		t.Errorf("%d series", n)
	}
	wants(t, text, `grapevine_endpoints{network="shop"} 2`, `grapevine_endpoints{network="n`+strings.Repeat("x", 999)+`"} 1`, `grapevine_endpoints{network="other"} 0`, `grapevine_endpoints{network="n?"} 1`)
}

// TestOthersNeverFall: a network that moves out of the others takes nothing with it, and finds what
// was counted under its name before.
func TestOthersNeverFall(t *testing.T) {
	f := facts()
	h := New(func() Facts { return f }).Handler()
	line := func(network string, n string) string {
		return `grapevine_network_packets_total{direction="sent",network="` + network + `"} ` + n
	}
	wants(t, scrape(t, h), line("shop", "8"))
	for i := range maxNetworks { // each has more containers here
		name := fmt.Sprint("n", i)
		f.Networks = append(f.Networks, api.Network{Name: name})
		for j := range 3 {
			f.Endpoints = append(f.Endpoints, api.Endpoint{ID: fmt.Sprint(i, "-", j), Network: name, Here: true})
		}
	}
	f.Flows[0].Packets += 10
	wants(t, scrape(t, h), line("other", "10"))
	f.Endpoints = append(f.Endpoints, api.Endpoint{ID: "dd", Network: "shop", Here: true}, api.Endpoint{ID: "ee", Network: "shop", Here: true})
	f.Flows[0].Packets += 5
	wants(t, scrape(t, h), line("other", "10"), line("shop", "13"))
	f.Networks = slices.DeleteFunc(f.Networks, func(n api.Network) bool { return n.Name == "ops" }) // one that was counted there, gone for good
	wants(t, scrape(t, h), line("other", "10"))
}

// TestSecret: the token is what the file says now, one that the agent makes is whole, and who else
// can read it is said.
func TestSecret(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if _, err := NewSecret(file, false).Token(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a token that nobody made: %v", err)
	}
	put := func(text string, age time.Duration) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(file, then, then); err != nil {
			t.Fatal(err)
		}
	}
	ours, theirs := NewSecret(file, true), NewSecret(file, false)
	for _, left := range []string{"", "\n"} { // of an agent that was killed
		put(left, time.Hour)
		if _, err := theirs.Token(); err == nil {
			t.Error("an empty file is taken for a token")
		}
		token, err := ours.Token()
		if err != nil || len(token) < minToken {
			t.Fatalf("%q, %v", token, err)
		}
		if again, err := NewSecret(file, true).Token(); err != nil || again != token {
			t.Errorf("%q, %v after %q", again, err, token)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 || ours.Exposed() != nil {
		t.Errorf("%v, %v, %v", info.Mode(), err, ours.Exposed())
	}
	for _, age := range []time.Duration{0, time.Hour} {
		for _, text := range []string{"0123456789abcdef", "0123456789abcdef7"} {
			put(text, age+time.Duration(len(text))*time.Minute)
			if got, err := ours.Token(); err != nil || got != text {
				t.Errorf("%q, %v; the file says %q", got, err, text)
			}
		}
	}
	for range 3 { // within the same tick of the clock
		for _, text := range []string{"0123456789abcdef", "fedcba9876543210"} {
			put(text, 0)
			if got, err := ours.Token(); err != nil || got != text {
				t.Errorf("%q, %v; the file says %q", got, err, text)
			}
		}
	}
	for _, bad := range []string{"short", "two words of some length"} {
		put(bad, 0)
		if _, err := ours.Token(); err == nil {
			t.Errorf("%q is taken for a token", bad)
		}
	}
	for mode, want := range map[os.FileMode]bool{0o644: true, 0o604: true, 0o620: true, 0o640: false, 0o400: false} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		if got := ours.Exposed(); (got != nil) != want {
			t.Errorf("mode %o: %v", mode, got)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if token, err := ours.Token(); err != nil || len(token) < minToken {
		t.Errorf("removed: %q, %v", token, err)
	}
}

// listening answers to the token "0123456789abcdef" until the test ends.
func listening(t *testing.T) (at, token string) {
	t.Helper()
	token = "0123456789abcdef"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		ended <- Serve(t.Context(), l, NewSecret(file, false), New(facts).Handler(), func() []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:7955")} })
	}()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String(), token
}

// TestFlooded: whoever opens connections without the token, and says nothing, half of something, or
// promises more, keeps nobody out, and costs so many goroutines and no more.
func TestFlooded(t *testing.T) {
	at, token := listening(t)
	before := runtime.NumGoroutine()
	for i := range 600 {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%3))}}
		c, err := d.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		say := []string{"", "GET /metrics HTTP/1.1\r\nX: ", "GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"}[i/3%3]
		if _, err := c.Write([]byte(say)); err != nil {
			continue // it is closed already
		}
	}
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at+"/sd", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	client := http.Client{Timeout: 30 * time.Second} // 600 connections that say nothing, 32 at a time for 5 s each, take longer
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	for end := time.Now().Add(4 * time.Second); runtime.NumGoroutine() > before+maxConnections+10; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

func TestServe(t *testing.T) {
	at, token := listening(t)
	for _, tt := range []struct{ path, show, want string }{
		{"/metrics", token, "grapevine_networks 2"},
		{"/sd", token, `[{"targets":["10.0.0.1:7955"]}]`},
		{"/metrics", "", "the token is wrong or missing"},
		{"/sd", token + "x", "the token is wrong or missing"},
		{"/v1/status", token, "404"},
		{"/", token, "404"},
	} {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at+tt.path, nil)
		if tt.show != "" {
			r.Header.Set("Authorization", "Bearer "+tt.show)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		if stranger := answer.StatusCode == http.StatusUnauthorized; answer.Close != stranger {
			t.Errorf("%s: closed: %v", tt.path, answer.Close)
		}
		answer.Body.Close()
		if !strings.Contains(answer.Status+string(body), tt.want) {
			t.Errorf("%s: %s %s, want %s", tt.path, answer.Status, body, tt.want)
		}
	}
}

// TestListenerGone: who serves no more says so.
func TestListenerGone(t *testing.T) {
	l, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := Serve(t.Context(), l, NewSecret("", false), http.NotFoundHandler(), nil); err == nil {
		t.Error("a listener that went is no error")
	}
}

func listen() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }
