package sim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// summary is what is kept of a cluster's day: times in seconds, below 0 if there are none.
type summary struct {
	Hosts    int     `json:"hosts"`
	Loss     int     `json:"loss"` // percent
	Settings string  `json:"settings"`
	Rows     []row   `json:"rows"`
	Rest     float64 `json:"rest"`    // bytes per second and host
	Churn    float64 `json:"churn"`   // likewise, while endpoints came and went
	Changes  float64 `json:"changes"` // of endpoints, per second in the cluster, then
	Took     float64 `json:"took"`    // seconds of a processor
}

// row is about one kind of event.
type row struct {
	Kind   string  `json:"kind"`
	One    float64 `json:"one"` // until one host knows, median
	OneP99 float64 `json:"one_p99"`
	All    float64 `json:"all"` // until all know, median
	AllP99 float64 `json:"all_p99"`
	Worst  float64 `json:"worst"`
	Events int     `json:"events"`
}

// summary boils a result down.
func (r result) summary() summary {
	s := summary{Hosts: r.hosts, Loss: r.loss, Settings: r.settings, Rest: r.rest, Churn: r.churn, Changes: r.changes, Took: r.took.Seconds()}
	for _, kind := range slices.Sorted(maps.Keys(r.times)) {
		t := r.times[kind]
		s.Rows = append(s.Rows, row{
			kind, quantile(t.each, 50), quantile(t.each, 99), quantile(t.all, 50), quantile(t.all, 99), quantile(t.all, 100), len(t.all),
		})
	}
	return s
}

// bare reports whether the hosts shared no addresses: there may be another result with them.
func (s summary) bare() bool { return strings.Contains(s.Settings, "-ring=false") }

// name is that of the file that the result is kept in.
func (s summary) name() string {
	name := fmt.Sprintf("%04d-%02d", s.Hosts, s.Loss)
	if s.bare() {
		name += "-bare"
	}
	return name + ".json"
}

// lost says how many packets were lost, and whether the hosts were bare.
func (s summary) lost() string {
	if s.bare() {
		return fmt.Sprintf("%d%%, no ring", s.Loss)
	}
	return fmt.Sprintf("%d%%", s.Loss)
}

// String is the table of one cluster.
func (s summary) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "time until known\tone host, median\tp99\tall hosts, median\tp99\tworst\tevents\t")
	for _, r := range s.Rows {
		fmt.Fprintf(w, "%s\t%s\t%d\t\n", r.Kind, strings.Join(r.times(), "\t"), r.Events)
	}
	_ = w.Flush()
	fmt.Fprintf(&b, "bytes per second and host: %.0f at rest, %.0f at %.0f endpoint changes per second; simulated in %.0f s of a processor\n",
		s.Rest, s.Churn, s.Changes, s.Took)
	return b.String()
}

// times are the row's, for people.
func (r row) times() (text []string) {
	for _, t := range []float64{r.One, r.OneP99, r.All, r.AllP99, r.Worst} {
		if t < 0 {
			text = append(text, "-")
			continue
		}
		text = append(text, fmt.Sprintf("%.2f s", t))
	}
	return text
}

// quantile is in seconds, -1 if there is nothing.
func quantile(list []time.Duration, percent int) float64 {
	if len(list) == 0 {
		return -1
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)].Seconds()
}

// report is all clusters' days, the smallest first.
type report []summary

// kept is where results are, one file each, beside the page at path.
func kept(path string) string { return strings.TrimSuffix(path, filepath.Ext(path)) }

// unfinished ends the name of a result of which not everything is there yet.
const unfinished = ".unfinished"

// keep writes a result as soon as it is there: the next cluster may take hours.
func (s summary) keep(path string) error {
	if err := s.write(path, ""); err != nil {
		return err
	}
	return os.Remove(filepath.Join(kept(path), s.name()+unfinished))
}

// keepUnfinished writes what there is of a result beside what an earlier run has left, and
// readReport leaves it out.
func (s summary) keepUnfinished(path string) error { return s.write(path, unfinished) }

func (s summary) write(path, suffix string) error {
	text, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(kept(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(kept(path), s.name()+suffix), append(text, '\n'), 0o644)
}

// readReport reads all that were kept.
func readReport(path string) (r report, err error) {
	files, _ := filepath.Glob(filepath.Join(kept(path), "*.json")) // the pattern is well formed
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var s summary
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		r = append(r, s)
	}
	slices.SortFunc(r, func(a, b summary) int { return cmp.Compare(a.name(), b.name()) })
	return r, nil
}

// write makes the Markdown page and the plots of all that was kept.
func (r report) write(path string) error {
	var b strings.Builder
	fmt.Fprint(&b, "# Simulation\n\nWritten by tests/sim (`make sim`) from the results in `docs/measurements/simulation/`: the real gossip, replica, ring and allocator of every host in one\nprocess, over links with 0.5 to 1.5 ms delay, 0.5% duplicated and 1% reordered packets, in virtual time.\nWhat processors need is not in these times. What is left to chance in the workload and the network is drawn by `-seed`; Go's own\nrandom numbers, which gossip draws from, are not, so that two runs differ a little.\n\n")
	name := filepath.Base(kept(path))
	fmt.Fprintf(&b, "![until a host knows: median (dot), 99th percentile (bar), worst (end of the line); dashed: 1.5 s](%s.svg)\n\n![bytes per second and host, at rest and under churn](%s-bytes.svg)\n\n", name, name)
	fmt.Fprintln(&b, "| hosts | packet loss | bytes/s and host, at rest | under churn | endpoint changes/s in the cluster | seconds of a processor | settings |")
	fmt.Fprintln(&b, "|---|---|---|---|---|---|---|")
	for _, s := range r {
		took := "-"
		if s.Took > 0 {
			took = fmt.Sprintf("%.0f", s.Took)
		}
		fmt.Fprintf(&b, "| %d | %s | %.0f | %.0f | %.0f | %s | `%s` |\n", s.Hosts, s.lost(), s.Rest, s.Churn, s.Changes, took, s.Settings)
	}
	fmt.Fprintln(&b, "\n| hosts | packet loss | what | until one host knows: median | p99 | until all know: median | p99 | worst | events |")
	fmt.Fprintln(&b, "|---|---|---|---|---|---|---|---|---|")
	for _, s := range r {
		for _, row := range s.Rows {
			fmt.Fprintf(&b, "| %d | %s | %s | %s | %d |\n", s.Hosts, s.lost(), row.Kind, strings.Join(row.times(), " | "), row.Events)
		}
	}
	for _, part := range []string{flowsFile(path), realTimeFile(path), "notes.md"} {
		if text, err := os.ReadFile(part); err == nil {
			fmt.Fprintf(&b, "\n%s", text)
		}
	}
	for file, svg := range map[string]string{kept(path) + ".svg": r.timesPlot(), kept(path) + "-bytes.svg": r.bytesPlot()} {
		if err := os.WriteFile(file, []byte(svg), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

func realTimeFile(path string) string { return filepath.Join(kept(path), "real-time.md") }

// keepRealTime writes what the tests in real time found.
func keepRealTime(path string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## In real time\n\nOver sockets of the loopback interface, on %d processors, which at the end had a load of %s. %s\n", runtime.GOMAXPROCS(0), load(), caughtUp)
	fmt.Fprintf(&b, "\nThe same events in real time, at that load, and simulated, where nobody waits for a processor:\n\n| hosts | all agree after | until one host knows: median | p99 | until all know: median | worst |\n|---|---|---|---|---|---|\n%s", truth)
	if err := os.MkdirAll(kept(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(realTimeFile(path), []byte(b.String()), 0o644)
}

// load is how many programs wanted a processor in the last minute, on average.
func load() string {
	raw, _ := os.ReadFile("/proc/loadavg") // "" is no load that there can be
	first, _, _ := strings.Cut(string(raw), " ")
	return first
}
