package sim

import (
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

type report []result

// String is the table of one cluster.
func (r result) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "time until known\tone host, median\tp99\tall hosts, median\tp99\tworst\tevents\t")
	for _, kind := range slices.Sorted(maps.Keys(r.times)) {
		t := r.times[kind]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t\n", kind,
			quantile(t.each, 50), quantile(t.each, 99), quantile(t.all, 50), quantile(t.all, 99), quantile(t.all, 100), len(t.all))
	}
	_ = w.Flush()
	fmt.Fprintf(&b, "bytes per second and host: %.0f at rest, %.0f at %.0f endpoint changes per second; simulated in %v\n",
		r.rest, r.churn, r.changes, r.took.Round(time.Second))
	return b.String()
}

// quantile is empty if there is nothing.
func quantile(list []time.Duration, percent int) string {
	if len(list) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f s", at(list, percent).Seconds())
}

func at(list []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}

// write makes the Markdown page.
func (r report) write(path string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Simulation\n\nWritten by tests/sim (`make sim` has larger clusters; seed %d): the real gossip, replica, ring and allocator of every host in one\nprocess, over links with 0.5 to 1.5 ms delay, 0.5%% duplicated and 1%% reordered packets, in virtual time.\nWhat processors need is not in these times. The partition lasts %v.\n\n", *seed, *apart)
	plot := strings.TrimSuffix(path, filepath.Ext(path)) + ".svg"
	fmt.Fprintf(&b, "![until a host knows: median (dot), 99th percentile (bar), worst (end of the line); dashed: 1.5 s](%s)\n\n", filepath.Base(plot))
	fmt.Fprintln(&b, "| hosts | packet loss | what | until one host knows: median | p99 | until all know: median | p99 | worst | events |")
	fmt.Fprintln(&b, "|---|---|---|---|---|---|---|---|---|")
	for _, res := range r {
		for _, kind := range slices.Sorted(maps.Keys(res.times)) {
			t := res.times[kind]
			fmt.Fprintf(&b, "| %d | %d%% | %s | %s | %s | %s | %s | %s | %d |\n", res.hosts, res.loss, kind,
				quantile(t.each, 50), quantile(t.each, 99), quantile(t.all, 50), quantile(t.all, 99), quantile(t.all, 100), len(t.all))
		}
	}
	fmt.Fprintln(&b, "\n| hosts | packet loss | bytes/s and host, at rest | under churn | endpoint changes/s in the cluster |")
	fmt.Fprintln(&b, "|---|---|---|---|---|")
	for _, res := range r {
		fmt.Fprintf(&b, "| %d | %d%% | %.0f | %.0f | %.0f |\n", res.hosts, res.loss, res.rest, res.churn, res.changes)
	}
	fmt.Fprintf(&b, "\n## In real time\n\nOver sockets of the loopback interface, on %d processors, which at the end had a load of %s. %s\n", runtime.GOMAXPROCS(0), load(), caughtUp)
	if truth != "" {
		fmt.Fprintf(&b, "\nThe same events in real time, at that load, and simulated, where nobody waits for a processor:\n\n| hosts | all agree after | until one host knows: median | p99 | until all know: median | worst |\n|---|---|---|---|---|---|\n%s", truth)
	}
	if notes, err := os.ReadFile("notes.md"); err == nil {
		fmt.Fprintf(&b, "\n%s", notes)
	}
	if err := os.WriteFile(plot, []byte(r.svg()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// load is how many programs wanted a processor in the last minute, on average.
func load() string {
	raw, _ := os.ReadFile("/proc/loadavg") // "" is no load that there can be
	first, _, _ := strings.Cut(string(raw), " ")
	return first
}
