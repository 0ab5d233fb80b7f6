package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/host/socket"
)

// run executes the command line against an agent with the handlers (nil: there
// is no agent) and returns what it prints.
func run(t *testing.T, h *api.Handlers, args ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	if h != nil {
		listener, err := socket.Listen(t.Context(), filepath.Join(dir, "grapevine.sock"), 0o700)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- api.Serve(ctx, listener, *h) }()
		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
	}
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs(append([]string{"--run=" + dir}, args...))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestStatusSaysFirstWhetherAllIsWell(t *testing.T) {
	s := api.Status{
		Name: "host1", Node: "0123456789abcdef", VTEP: netip.MustParseAddr("10.0.0.1"), MTU: 1500, VXLANPort: 4789, Since: time.Now(),
		Hosts: api.Count{Part: 2, All: 3}, Endpoints: api.Count{Part: 4, All: 9}, Refused: map[string]uint64{"wrong key": 5},
	}
	h := &api.Handlers{Status: func(context.Context) (api.Status, error) { return s, nil }}
	out, err := run(t, h, "status")
	if err != nil || !strings.HasPrefix(out, "All is well.\n") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, want := range []string{"host1 (0123456789abcdef)", "2 of 3 alive", "4 here, 9 in the cluster", "5 gossip messages: wrong key"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("colour although this is no terminal")
	}
	s.Problems = []api.Problem{{Code: api.HostSilent, What: "host3 does not answer", Do: "start it"}}
	out, err = run(t, h, "status")
	if err != nil || !strings.HasPrefix(out, "Not well: 1 problem.\n  - host3 does not answer [host-silent]\n    start it\n") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = run(t, h, "status", "-o", "json")
	if err != nil || !strings.Contains(out, `"code": "host-silent",`) || !strings.Contains(out, `"severity": "error",`) {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestStatusWithoutAgent: who reads JSON gets it, whatever is wrong.
func TestStatusWithoutAgent(t *testing.T) {
	out, err := run(t, nil, "status", "-o", "json")
	var s api.Status
	if json.Unmarshal([]byte(out), &s) != nil || err == nil || len(s.Problems) != 1 || s.Problems[0].Code != api.AgentSilent || !strings.Contains(s.Problems[0].What, "is it running?") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestStatusCheck: scripts read the exit status; what is printed is as ever.
func TestStatusCheck(t *testing.T) {
	s := api.Status{}
	h := &api.Handlers{Status: func(context.Context) (api.Status, error) { return s, nil }}
	for _, tt := range []struct {
		h        *api.Handlers
		problems int
		line     string
		want     error
		says     string
	}{
		{h, 0, "status --check", nil, "All is well.\n"},
		{h, 1, "status --check", errSomethingWrong, "Not well: 1 problem.\n"},
		{h, 1, "status --check -o json", errSomethingWrong, "{\n"},
		{h, 1, "status", nil, "Not well: 1 problem.\n"},
		{nil, 0, "status --check", errNotAsked, ""},
		{nil, 0, "status --check -o json", errNotAsked, "{\n"},
	} {
		s.Problems = make([]api.Problem, tt.problems)
		out, err := run(t, tt.h, strings.Fields(tt.line)...)
		if err != tt.want || !strings.HasPrefix(out, tt.says) {
			t.Errorf("%s with %d problems: %v, want %v\n%s", tt.line, tt.problems, err, tt.want, out)
		}
	}
}

func TestRingIsDrawn(t *testing.T) {
	out, err := run(t, &api.Handlers{Ring: func(context.Context) ([]api.Pool, error) {
		block := netip.MustParsePrefix
		return []api.Pool{{Network: "blue", Prefix: block("10.128.0.0/22"), Shares: []api.Share{
			{Host: "host1", Blocks: []netip.Prefix{block("10.128.0.0/23")}, Part: 0.5},
			{Host: "host2", Blocks: []netip.Prefix{
				block("10.128.2.0/25"), block("10.128.3.0/25"), block("10.128.3.128/26"), block("10.128.3.224/27"), block("10.128.3.192/28"),
			}, Part: 0.4999},
			{Host: "host3", Blocks: []netip.Prefix{block("10.128.2.128/32")}, Part: 0.0001},
		}}}, nil
	}}, "ring")
	want := `network blue  10.128.0.0/22
  HOST    SHARE                                              BLOCKS
  host1   ####################....................   50.0%   10.128.0.0/23
  host2   ####################....................   50.0%   10.128.2.0/25, 10.128.3.0/25, 10.128.3.128/26, and 2 more
  host3   #.......................................   <0.1%   10.128.2.128/32
`
	if err != nil || out != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out, want)
	}
}

// TestJSON checks that -o json prints what the agent answered, for every list.
func TestJSON(t *testing.T) {
	h := &api.Handlers{
		Status:    func(context.Context) (api.Status, error) { return api.Status{Name: "host1"}, nil },
		Nodes:     func(context.Context) ([]api.Node, error) { return []api.Node{{Name: "host1"}}, nil },
		Networks:  func(context.Context) ([]api.Network, error) { return []api.Network{{Name: "blue"}}, nil },
		Endpoints: func(context.Context) ([]api.Endpoint, error) { return []api.Endpoint{{Name: "db"}}, nil },
		Ring:      func(context.Context) ([]api.Pool, error) { return []api.Pool{{Network: "blue"}}, nil },
		Flows:     func(context.Context) ([]api.Flow, error) { return []api.Flow{{Match: "ip", Packets: 1}}, nil },
		JoinCommand: func(context.Context) (api.JoinCommand, error) {
			return api.JoinCommand{Plugin: "docker plugin install x"}, nil
		},
		Leave:    func(_ context.Context, r api.LeaveRequest) (api.Done, error) { return api.Done{Text: "left"}, nil },
		Forget:   func(_ context.Context, r api.ForgetRequest) (api.Done, error) { return api.Done{Text: r.Hosts[0]}, nil },
		FastPath: func(_ context.Context, r api.FastPathRequest) (api.Done, error) { return api.Done{Text: r.Mode}, nil },
	}
	for args, want := range map[string]string{
		"status": "host1", "nodes": "host1", "networks": "blue", "endpoints": "db", "ring": "blue", "flows": "ip",
		"join-command": "docker plugin install x", "leave": "left", "forget host9": "host9", "fastpath auto": "auto", "version": "version",
	} {
		out, err := run(t, h, append(strings.Fields(args), "-o", "json")...)
		if err != nil || !json.Valid([]byte(out)) || !strings.Contains(out, `"`+want+`"`) {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
		out, err = run(t, h, strings.Fields(args)...)
		if err != nil || json.Valid([]byte(out)) || want != "version" && !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
}

func TestErrorsForPeople(t *testing.T) {
	h := &api.Handlers{
		Nodes: func(context.Context) ([]api.Node, error) {
			return []api.Node{{Name: "host1", Alive: true}, {Name: "host2"}, {Name: "nas"}}, nil
		},
		Networks: func(context.Context) ([]api.Network, error) {
			return []api.Network{{Name: "blue"}, {Name: "red"}}, nil
		},
		Endpoints: func(context.Context) ([]api.Endpoint, error) { return nil, nil },
		Ring:      func(context.Context) ([]api.Pool, error) { return nil, nil },
	}
	for _, tt := range []struct {
		agent      *api.Handlers
		args, want string
	}{
		{nil, "status", "is it running?"},
		{h, "status -o yaml", "use table or json"},
		{h, "forget", "wants the name of a host: `grapevine forget HOST...`"},
		{h, "nodes nass", "there is no host nass: did you mean nas?"},
		{h, "nodes host3", "there is no host host3: there are host1, host2 and nas"}, // two are as near
		{h, "networks bleu", "there is no network bleu: did you mean blue?"},
		{h, "ring rd", "did you mean red?"},
		{h, "ps 10.128.0.9", "no container has the address 10.128.0.9"},
		{h, "show db", "there is no container, network or host db: there are blue, host1, host2, nas and red"},
		{h, "show", "wants the name of a container, network, host or address"},
		{h, "statsu", "there is no command `grapevine statsu`: did you mean `grapevine status`?"},
		{h, "doc", "did you mean `grapevine doctor`?"},
		{h, "peers", "did you mean `grapevine nodes`?"},
		{h, "gargle", "`grapevine --help` lists them"},
		{h, "keys lits", "did you mean `grapevine keys list`?"},
		{h, "wait networks blue", "did you mean `grapevine wait network`?"},
		{h, "keys use", "`grapevine keys use KEY`"},
		{h, "status now", "takes no name"},
		{h, "status --chekc", "unknown flag: --chekc: `grapevine status --help` lists the flags"},
		{h, "traffic --most=-1", "--most takes a number of lines, and not -1 (0: all)"},
		{h, "traffic --top --follow", "use one of them"},
		{h, "traffic -f -o yaml", "-o yaml is unknown"},
		{h, "traffic --port 99999", "--port takes a number from 0 to 65535, and not 99999"},
		{h, "ping host1 --interval soon", "--interval takes a time, such as 30s or 5m, and not soon"},
		{h, "keys turn", "there is no command `grapevine keys turn`: there are "},
		{h, "fastpath", "wants a word more: on, off, auto, look or direct"},
		{h, "fastpath maybe", "knows no maybe: say on, off, auto, look or direct"},
	} {
		if out, err := run(t, tt.agent, strings.Fields(tt.args)...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q\n%s", tt.args, err, tt.want, out)
		}
	}
}

// TestHelp holds every command to a short text and to examples, which a scenario runs.
func TestHelp(t *testing.T) {
	scenario, err := os.ReadFile("../../tests/scenarios/examples.txtar")
	if err != nil {
		t.Fatal(err)
	}
	run := map[string]bool{}
	for line := range strings.Lines(string(scenario)) {
		if words := strings.Fields(line); len(words) > 2 && words[0] == "examples" {
			for _, verb := range words[2:] {
				run[verb] = true
			}
		}
	}
	for _, c := range newRoot().Commands() {
		if c.Hidden {
			continue
		}
		if c.Short == "" || c.Example == "" || !strings.Contains(c.Example, "grapevine "+c.Name()) {
			t.Errorf("%s: no short text, or no example of its own", c.Name())
		}
		if !run[c.Name()] {
			t.Errorf("%s: tests/scenarios/examples.txtar does not run its examples", c.Name())
		}
		if c.RunE == nil {
			t.Errorf("%s does nothing", c.Name())
		}
	}
}
