package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// about says on what the figures were taken: one sentence.
func (b *bench) about(ctx context.Context) (string, error) {
	h := b.lab.Hosts[0]
	ask := func(argv ...string) string {
		text, err := h.Exec(ctx, argv...)
		if err != nil {
			return "?"
		}
		return strings.TrimSpace(text)
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "", err
	}
	cpus, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", err
	}
	model := "unknown"
	for line := range strings.Lines(string(cpus)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	ovs, _, _ := strings.Cut(ask("ovs-vswitchd", "--version"), "\n")
	docker := ask("docker", "version", "--format", "{{.Server.Version}}")
	return fmt.Sprintf("%d rounds of %d s a figure; %d processors (%s), Linux %s, Docker %s, %s; load before %s.",
		b.rounds, b.seconds, runtime.NumCPU(), model, ask("uname", "-r"), docker, ovs, strings.Join(strings.Fields(string(load))[:3], " ")), nil
}

// write puts the tables into the Markdown file, in place of the former ones of this kind
// of hosts, and the plot beside it.
func (b *bench) write(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if tables := b.markdown(overlay); tables != "" {
		plot := strings.TrimSuffix(filepath.Base(file), ".md") + "-" + b.kind + ".svg"
		if err := os.WriteFile(filepath.Join(filepath.Dir(file), plot), []byte(b.svg()), 0o644); err != nil {
			return err
		}
		if text, err = between(text, b.kind, b.machine+"\n\n![grapevine with the fast path, against Docker's overlay]("+plot+")\n\n"+tables); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	if tables := b.markdown(bridge); tables != "" {
		if text, err = between(text, b.kind+" outside", b.machine+"\n\n"+tables); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return os.WriteFile(file, text, 0o644)
}

// between replaces what stands between the two lines of that name.
func between(text []byte, name, with string) ([]byte, error) {
	begin, end := "<!-- bench "+name+": begin -->\n", "<!-- bench "+name+": end -->\n"
	i, j := bytes.Index(text, []byte(begin)), bytes.Index(text, []byte(end))
	if i < 0 || j < i {
		return nil, fmt.Errorf("no lines %q and %q", begin, end)
	}
	return slices.Concat(text[:i+len(begin)], []byte(with), text[j:]), nil
}

// markdown is the tables against a peer, with what is wanted of the first ratio.
func (b *bench) markdown(peer string) string {
	var out strings.Builder
	for _, at := range b.against(peer) {
		columns, ratios := at.columns()
		first, last := ratios[0], ratios[len(ratios)-1]
		titles := map[string]string{overlay: "Docker's overlay", bridge: "Docker's bridge"}
		fmt.Fprintf(&out, "| %s |", at.name)
		for _, path := range columns {
			fmt.Fprintf(&out, " %s |", cmp.Or(titles[path], path))
		}
		fmt.Fprintf(&out, " %s / %s | wanted | | %s / %s |\n|%s\n", first[0], first[1], last[0], last[1], strings.Repeat("---|", len(columns)+5))
		for _, f := range at.rows() {
			fmt.Fprintf(&out, "| %s |", f.name)
			for _, path := range columns {
				fmt.Fprintf(&out, " %s |", cell(b.samples.median(f.name, at.name+path), f.digits))
			}
			ratio, verdict := b.samples.ratio(f.name, at.name+first[0], at.name+first[1]), "missed"
			if f.reached(at.name, ratio) {
				verdict = "reached"
			}
			fmt.Fprintf(&out, " %.2f | %s | %s | %s |\n", ratio, f.bound(at.name), verdict, cell(b.samples.ratio(f.name, at.name+last[0], at.name+last[1]), 2))
		}
		out.WriteString("\n")
	}
	return out.String()
}

// against are the places whose figures are compared with the peer's.
func (b *bench) against(peer string) []place {
	return slices.DeleteFunc(slices.Clone(b.tables), func(at place) bool { return at.peer != peer })
}

// wanted is what a ratio to Docker's overlay is to be: at least, or of a cost at most.
func (f figure) wanted(place string) float64 {
	if place == oneHost {
		return 1
	}
	return f.want
}

func (f figure) reached(place string, ratio float64) bool {
	if f.cost {
		return ratio <= f.wanted(place)
	}
	return ratio >= f.wanted(place)
}

func (f figure) bound(place string) string {
	if f.cost {
		return fmt.Sprintf("at most %.2f", f.wanted(place))
	}
	return fmt.Sprintf("at least %.2f", f.wanted(place))
}

// Sizes of the plot, in pixels, and the ratios at its ends; the scale is logarithmic.
const (
	plotLeft, plotTop, plotWide, plotRow = 240, 40, 420, 24
	plotLow, plotMost                    = 0.25, 4.0
)

func plotX(ratio float64) float64 {
	ratio = min(max(ratio, plotLow), plotMost)
	return plotLeft + plotWide*math.Log(ratio/plotLow)/math.Log(plotMost/plotLow)
}

// svg draws the ratio of each figure to that of Docker's overlay: a line from the least of the rounds
// to the most, a dot at the median, green where what is wanted is reached, and a tick at that.
func (b *bench) svg() string {
	var out strings.Builder
	height := plotTop + 10
	for _, at := range b.against(overlay) {
		height += (len(at.rows()) + 1) * plotRow
	}
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n", plotLeft+plotWide+60, height)
	fmt.Fprintln(&out, `<rect width="100%" height="100%" fill="white"/>`)
	fmt.Fprintln(&out, `<text x="4" y="14">grapevine / Docker's overlay: median of the rounds, least and most; tick: what is wanted</text>`)
	for ratio := plotLow; ratio <= plotMost; ratio *= 2 {
		fmt.Fprintf(&out, `<path d="M%.1f %dV%d" stroke="%s"/><text x="%.1f" y="%d" text-anchor="middle">%g</text>`+"\n",
			plotX(ratio), plotTop, height-10, map[bool]string{true: "#888", false: "#ddd"}[ratio == 1], plotX(ratio), plotTop-6, ratio)
	}
	y := plotTop
	for _, at := range b.against(overlay) {
		y += plotRow
		fmt.Fprintf(&out, `<text x="4" y="%d" font-weight="bold">%s</text>`+"\n", y-6, at.name)
		for _, f := range at.rows() {
			y += plotRow
			fmt.Fprintf(&out, `<text x="12" y="%d">`, y-6)
			_ = xml.EscapeText(&out, []byte(f.name)) // to memory
			fmt.Fprintln(&out, `</text>`)
			ratios := b.samples.ratios(f.name, at.name+grapevine, at.name+overlay)
			if len(ratios) == 0 {
				continue
			}
			colour := "#cc3311"
			if f.reached(at.name, median(ratios)) {
				colour = "#228833"
			}
			want := plotX(f.wanted(at.name))
			fmt.Fprintf(&out, `<path d="M%.1f %dH%.1f" stroke="%s" stroke-width="2"/><circle cx="%.1f" cy="%d" r="4" fill="%s"/><path d="M%.1f %dv12" stroke="#4477aa" stroke-width="2"/>`+"\n",
				plotX(slices.Min(ratios)), y-10, plotX(slices.Max(ratios)), colour, plotX(median(ratios)), y-10, colour, want, y-16)
			fmt.Fprintf(&out, `<text x="%d" y="%d">%.2f</text>`+"\n", plotLeft+plotWide+16, y-6, median(ratios))
		}
	}
	fmt.Fprintln(&out, `</svg>`)
	return out.String()
}
