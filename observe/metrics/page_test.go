package metrics

import (
	"flag"
	"fmt"
	"os"
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
