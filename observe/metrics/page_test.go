package metrics

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

var update = flag.Bool("update", false, "write the table in docs/operate/metrics.md")

const (
	page   = "../../docs/operate/metrics.md"
	marker = "<!-- The table is made by go test ./observe/metrics -update. -->\n"
)

// TestPage holds the page's table to the metrics that there are.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, _, found := strings.Cut(string(text), marker)
	var b strings.Builder
	b.WriteString(head + marker + "\n| metric | kind | labels | what it is |\n|---|---|---|---|\n")
	for _, m := range all {
		kind := "gauge"
		if m.kind == prometheus.CounterValue {
			kind = "counter"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, kind, strings.Join(m.Labels, ", "), m.Doc)
	}
	b.WriteString("| `go_*`, `process_*` | | | what the agent itself uses |\n")
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !found || string(text) != b.String() {
		t.Errorf("%s is stale: go test ./observe/metrics -update", page)
	}
}

// TestAlertsNameMetrics: an expression with a metric that is not there would never fire.
func TestAlertsNameMetrics(t *testing.T) {
	rules, err := os.ReadFile("../../docs/operate/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	exposed := scrape(t, New(facts).Handler())
	selectors := regexp.MustCompile(`(grapevine_\w+)(?:\{(\w+)=~?"([^"]*)"\})?`).FindAllStringSubmatch(string(rules), -1)
	if len(selectors) < 10 {
		t.Fatalf("%d selectors in the rules", len(selectors))
	}
	for _, s := range selectors {
		for _, value := range strings.Split(s[3], "|") {
			line := `(?m)^` + s[1] + `[{ ]`
			if s[2] != "" {
				line = `(?m)^` + s[1] + `\{(.*,)?` + s[2] + `="` + value + `"`
			}
			if !regexp.MustCompile(line).MatchString(exposed) {
				t.Errorf("%s has no series", s[0])
			}
		}
	}
}

// promtool is Debian's; without it these tests are skipped, and fail where CI is set.
func promtool(t *testing.T, stdin string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("there is no promtool: run scripts/setup page")
		}
		t.Skip("there is no promtool: run scripts/setup page")
	}
	cmd := exec.Command("promtool", args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestPromtool: Prometheus' own tool finds no fault with the metrics, and each alert fires when it should, and not before.
func TestPromtool(t *testing.T) {
	var lines []string
	for line := range strings.Lines(scrape(t, New(facts).Handler())) {
		if strings.Contains(line, "grapevine_") { // the others are client_golang's
			lines = append(lines, line)
		}
	}
	promtool(t, strings.Join(lines, ""), "check", "metrics")
	promtool(t, "", "check", "rules", "../../docs/operate/alerts.yml")
	promtool(t, "", "test", "rules", "testdata/alerts_test.yml")
}

// TestAlertsAreTested: each alert is in promtool's test.
func TestAlertsAreTested(t *testing.T) {
	rules, err := os.ReadFile("../../docs/operate/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile("testdata/alerts_test.yml")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(rules), -1)
	for _, n := range names {
		if !strings.Contains(string(tests), "alertname: "+n[1]+"\n    exp_alerts: [{") {
			t.Errorf("%s never fires in testdata/alerts_test.yml", n[1])
		}
	}
	if len(names) == 0 {
		t.Error("no alerts")
	}
}

// TestDashboard: each panel asks for metrics that there are, and says what a bad value means.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../../docs/operate/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			ID                       int
			Type, Title, Description string
			Targets                  []struct{ Expr string }
			GridPos                  struct{ H, W, X, Y int }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	exposed := scrape(t, New(facts).Handler())
	asked := map[string]bool{}
	ids, places := map[int]string{}, map[[2]int]string{}
	for _, p := range board.Panels {
		if other := ids[p.ID]; other != "" {
			t.Errorf("%s and %s have the id %d", other, p.Title, p.ID)
		}
		ids[p.ID] = p.Title
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other := places[at]; other != "" {
					t.Fatalf("%s lies over %s", p.Title, other)
				}
				places[at] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("panel %s has no description, or asks nothing", p.Title)
		}
		for _, target := range p.Targets {
			for _, name := range regexp.MustCompile(`\b(grapevine|process|go)_\w+`).FindAllString(target.Expr, -1) {
				asked[name] = true
				if !regexp.MustCompile(`(?m)^` + name + `[{ ]`).MatchString(exposed) {
					t.Errorf("panel %s asks for %s, which is not there", p.Title, name)
				}
			}
		}
	}
	for _, m := range all { // and none is left out, but for what is in labels of others or of the kernel's datapath alone
		if !asked[m.Name] && m.Name != "grapevine_node_info" && m.Name != "grapevine_networks" && m.Name != "grapevine_datapath_lookups_total" {
			t.Errorf("no panel shows %s", m.Name)
		}
	}
}
