package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
)

var update = flag.Bool("update", false, "write the manual pages")

const manDir = "../../docs/man"

// TestManPagesAreCurrent holds docs/man to what the commands say.
func TestManPagesAreCurrent(t *testing.T) {
	pages := manPages()
	if *update {
		os.RemoveAll(manDir)
		if err := os.MkdirAll(manDir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range pages {
			if err := os.WriteFile(filepath.Join(manDir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	entries, err := os.ReadDir(manDir)
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, e := range entries {
		have = append(have, e.Name())
		text, err := os.ReadFile(filepath.Join(manDir, e.Name()))
		if err != nil || string(text) != pages[e.Name()] {
			t.Errorf("%s is not what the command says: make docs (%v)", e.Name(), err)
		}
	}
	if want := slices.Sorted(maps.Keys(pages)); !slices.Equal(have, want) {
		t.Errorf("pages %q, want %q: make docs", have, want)
	}
}

func TestManPage(t *testing.T) {
	page := manPages()["grapevine-doctor.1"]
	for _, want := range []string{
		".TH GRAPEVINE-DOCTOR 1", "\ngrapevine\\-doctor \\- Look for what is wrong", "Exit status: 0 all is well",
		"\\fB\\-o\\fR, \\fB\\-\\-output\\fR \\fIstring\\fR\ntable or json (default table)", ".SH EXAMPLES\n.nf\n  grapevine doctor\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is missing in\n%s", want, page)
		}
	}
	if got := roff(".a 'b' -c\\n\n.d"); got != `\&.a \(aqb\(aq \-c\en`+"\n"+`\&.d` {
		t.Errorf("escaped: %s", got)
	}
}

// TestStatusFitsAScreen: 50 hosts of which all others are dead, with long names, on 80
// columns and 24 rows, the last of which is the prompt's.
func TestStatusFitsAScreen(t *testing.T) {
	s := api.Status{
		Name: strings.Repeat("long-name", 7), Node: strings.Repeat("0123456789abcdef", 2), Cluster: "1644a399b4c7a6430fb51da2f5aff7fd",
		VTEP: netip.MustParseAddr("2001:db8:1234:5678:9abc:def0:1234:5678"), MTU: 1500, VXLANPort: 4789, OVS: "embedded", Datapath: "userspace",
		Since: time.Now(), Hosts: api.Count{Part: 1, All: 50}, Refused: map[string]uint64{"bad-key": 1, "garbage": 2},
	}
	for i := range 49 {
		s.Problems = append(s.Problems, api.Problem{
			What: fmt.Sprintf("host %s-%d (192.0.2.%d) does not answer", strings.Repeat("host", 15), i, i),
			Do:   "start it; if it is gone for good: grapevine forget host" + strconv.Itoa(i) + " and then some words that need another line",
		})
	}
	for _, problems := range []int{0, 1, 2, 3, 4, 5, 49} {
		s := s
		s.Problems = s.Problems[:problems]
		var b strings.Builder
		if err := showStatusOn(&b, s, screen{80, 24}); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		if first := lines[0]; len(lines) > 23 || problems == 0 && first != "All is well." || problems > 0 && !strings.HasPrefix(first, "Not well") {
			t.Errorf("%d problems: %d lines\n%s", problems, len(lines), b.String())
		}
		for _, l := range lines {
			if len([]rune(l)) > 80 {
				t.Errorf("%d columns: %s", len([]rune(l)), l)
			}
		}
		if problems == 49 && (!strings.Contains(b.String(), "more: grapevine doctor") || !strings.Contains(b.String(), "1 of 50 alive")) {
			t.Errorf("what was left out:\n%s", b.String())
		}
		if problems == 1 && strings.Contains(b.String(), "more:") {
			t.Errorf("one problem fits:\n%s", b.String())
		}
	}
}

// TestCompletion asks as the shells' scripts do (__complete), and runs bash's.
func TestCompletion(t *testing.T) {
	h := &api.Handlers{
		Nodes: func(context.Context) ([]api.Node, error) {
			return []api.Node{{Name: "host1", Alive: true}, {Name: "host2"}, {Name: "host3"}}, nil
		},
		Networks: func(context.Context) ([]api.Network, error) {
			return []api.Network{{Name: "blue", VNID: 7}, {Name: "red"}}, nil
		},
		Endpoints: func(context.Context) ([]api.Endpoint, error) {
			return []api.Endpoint{{Name: "db", Network: "blue"}, {Name: "web", Network: "red"}}, nil
		},
	}
	for line, want := range map[string][]string{
		"forget |":                {"host2", "host3"},
		"forget host2 |":          {"host3"},
		"endpoints |":             {"blue", "red", "db", "web", "host1", "host2", "host3"},
		"show db |":               {"blue", "red", "web", "host1", "host2", "host3"},
		"nodes |":                 {"host1", "host2", "host3"},
		"ring b|":                 {"blue", "red"}, // the shell picks what begins with b
		"join-command |":          {"plugin", "service"},
		"completion |":            {"bash", "zsh", "fish"},
		"doc|":                    {"doctor"},
		"status --out|":           {"--output"},
		"endpoints blue --outpu|": {"--output"},
	} {
		words := strings.Split(strings.TrimSuffix(line, "|"), " ")
		out, err := run(t, h, append([]string{"__complete"}, words...)...)
		var got []string
		for l := range strings.Lines(out) {
			if word, _, _ := strings.Cut(strings.TrimSpace(l), "\t"); word != "" && !strings.HasPrefix(word, ":") && !strings.HasSuffix(word, "=") {
				got = append(got, word)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q (%v)", line, got, want, err)
		}
	}
	if out, err := run(t, h, "endpoints", "blue"); err != nil || !strings.Contains(out, "db") || strings.Contains(out, "web") {
		t.Errorf("endpoints of blue: %v\n%s", err, out)
	}
	if _, err := run(t, h, "endpoints", "green"); err == nil || !strings.Contains(err.Error(), "network or host green") {
		t.Errorf("endpoints of green: %v", err)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script, err := run(t, nil, "completion", shell)
		if err != nil || !strings.Contains(script, "__complete") {
			t.Errorf("%s: %v\n%.200s", shell, err, script)
		}
		if path, err := exec.LookPath(shell); err == nil {
			check := exec.Command(path, "-n")
			check.Stdin = strings.NewReader(script)
			if out, err := check.CombinedOutput(); err != nil {
				t.Errorf("%s does not read it: %v\n%s", shell, err, out)
			}
		}
	}
}
