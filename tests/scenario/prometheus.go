package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/grapevine-net/grapevine/tests/lab"
)

var prometheusCommands = map[string]command{"prometheus": runPrometheus, "evaluates": evaluates}

// promConfig asks the hosts that an agent lists, each second.
const promConfig = `global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [/root/prometheus/alerts.yml]
scrape_configs:
- job_name: grapevine
  authorization: {type: Bearer, credentials_file: %[2]s}
  http_sd_configs:
  - url: %[1]s
    refresh_interval: 1s
    authorization: {type: Bearer, credentials_file: %[2]s}
`

const promAddr = "127.0.0.1:9090"

// soon is how long an alert is to be true before it fires: here it is not waited for.
var soon = regexp.MustCompile(`(?m)^    for: .*$`)

// runPrometheus HOST SD-URL TOKEN-FILE: Prometheus runs there, with docs/operate/alerts.yml.
func runPrometheus(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) != 3 {
		return "", usageError("usage: prometheus HOST SD-URL TOKEN-FILE")
	}
	h, err := s.host(args[0])
	if err != nil {
		return "", err
	}
	alerts, err := operate("alerts.yml")
	if err != nil {
		return "", err
	}
	const start = `mkdir -p /root/prometheus; printf %s "$1" >/root/prometheus/prometheus.yml; printf %s "$2" >/root/prometheus/alerts.yml
setsid prometheus --config.file=/root/prometheus/prometheus.yml --storage.tsdb.path=/root/prometheus/data --web.listen-address="$3" >/root/prometheus/log 2>&1 </dev/null &`
	_, err = h.Exec(ctx, "sh", "-c", start, "prometheus", fmt.Sprintf(promConfig, args[1], args[2]), soon.ReplaceAllString(alerts, ""), promAddr)
	return "", err
}

func operate(name string) (string, error) {
	root, err := lab.ModuleRoot()
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(root, "docs/operate", name))
	return string(text), err
}

// kernelOnly are alerts about what only a kernel's datapath counts.
var kernelOnly = []string{"GrapevineUpcallsLost"}

// evaluates HOST: within half a minute each expression of the dashboard has data in the Prometheus there, and each
// alert's, but for what it is compared with.
func evaluates(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) != 1 {
		return "", usageError("usage: evaluates HOST")
	}
	h, err := s.host(args[0])
	if err != nil {
		return "", err
	}
	wanted, err := expressions()
	if err != nil {
		return "", err
	}
	all := len(wanted)
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second*s.patience())
	defer cancel()
	for why := ""; len(wanted) > 0; {
		for _, expr := range slices.Sorted(maps.Keys(wanted)) {
			said, err := h.Exec(ctx, "busybox", "wget", "-qO-", "http://"+promAddr+"/api/v1/query?query="+url.QueryEscape(expr))
			var answer struct {
				Status string
				Data   struct{ Result []json.RawMessage }
			}
			if err == nil {
				err = json.Unmarshal([]byte(said), &answer)
			}
			if err == nil && answer.Status == "success" && len(answer.Data.Result) > 0 {
				delete(wanted, expr)
				continue
			}
			why = fmt.Sprintf("%s: no data for %s: %v %s", wanted[expr], expr, err, said)
			if ctx.Err() != nil {
				log, _ := h.Exec(context.WithoutCancel(ctx), "tail", "-n", "20", "/root/prometheus/log")
				return "", fmt.Errorf("%d of %d expressions have no data, as of %s\n%s", len(wanted), all, why, log)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
	return fmt.Sprintf("%d expressions have data\n", all), nil
}

// compared is what an alert's expression ends with.
var compared = regexp.MustCompile(` (>|<|==|>=|<=) [0-9.]+$`)

// expressions are those of the dashboard, with its variables in place, and of the alerts, with where they are from.
func expressions() (map[string]string, error) {
	out := map[string]string{}
	text, err := operate("grafana.json")
	if err != nil {
		return nil, err
	}
	type target struct{ Expr string }
	var board struct {
		Panels []struct {
			Title   string
			Targets []target
		}
		Templating struct {
			List []struct{ Name, Definition string }
		}
	}
	if err := json.Unmarshal([]byte(text), &board); err != nil {
		return nil, fmt.Errorf("read the dashboard: %w", err)
	}
	variables := strings.NewReplacer("$__rate_interval", "10s", "$job", "grapevine", "$instance", ".*", "$network", ".*")
	for _, p := range board.Panels {
		for _, t := range p.Targets {
			out[variables.Replace(t.Expr)] = "panel " + p.Title
		}
	}
	for _, v := range board.Templating.List {
		if metric, found := strings.CutPrefix(v.Definition, "label_values("); found {
			metric = metric[:strings.LastIndex(metric, ",")]
			out[variables.Replace(metric)] = "variable " + v.Name
		}
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if text, err = operate("alerts.yml"); err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal([]byte(text), &rules); err != nil {
		return nil, fmt.Errorf("read the alerts: %w", err)
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if !slices.Contains(kernelOnly, r.Alert) {
				out[compared.ReplaceAllString(r.Expr, "")] = "alert " + r.Alert
			}
		}
	}
	if len(out) < 30 {
		return nil, fmt.Errorf("%d expressions: too few", len(out))
	}
	return out, nil
}
