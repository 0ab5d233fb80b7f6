package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

type key struct{ figure, path string }

// samples are the values of each figure on each path.
type samples map[key][]float64

func (s samples) add(figure, path string, v float64) {
	k := key{figure, path}
	s[k] = append(s[k], v)
}

func (s samples) median(figure, path string) float64 { return median(s[key{figure, path}]) }

// ratio is the median of how many times a's value path b's is, sample by sample: the
// paths take turns, so those with the same number met the machine in the same mood. It
// is 0 if one has no samples.
func (s samples) ratio(figure, a, b string) float64 { return median(s.ratios(figure, a, b)) }

func (s samples) ratios(figure, a, b string) (ratios []float64) {
	of, to := s[key{figure, a}], s[key{figure, b}]
	for i := range min(len(of), len(to)) {
		if to[i] != 0 { // nothing is so many times that
			ratios = append(ratios, of[i]/to[i])
		}
	}
	return ratios
}

// median is 0 if there are no samples.
func median(samples []float64) float64 {
	v := slices.Sorted(slices.Values(samples))
	if len(v) == 0 {
		return 0
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// surely is between which samples the true median is, with 95% confidence and whatever their distribution: that of
// how many are above it is binomial, here by its normal approximation. Five samples are too few.
func surely(samples []float64) (low, high float64, ok bool) {
	v := slices.Sorted(slices.Values(samples))
	n := float64(len(v))
	rank := int((n+1)/2 - 0.98*math.Sqrt(n))
	if rank < 1 {
		return 0, 0, false
	}
	return v[rank-1], v[len(v)-rank], true
}

// compared is the cell of a ratio: its median, and between what the true one is.
func (s samples) compared(figure, a, b string) string {
	ratios := s.ratios(figure, a, b)
	low, high, ok := surely(ratios)
	if !ok {
		return cell(median(ratios), 2)
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f)", median(ratios), low, high)
}

// report is the table of medians and ratios.
func (b *bench) report() string {
	var rows strings.Builder
	w := tabwriter.NewWriter(&rows, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tunderlay\toverlay\tgrapevine\tgrapevine/overlay\tgrapevine/underlay\t")
	measured := false
	row := func(figure string, digits int) {
		u, o, g := b.samples.median(figure, underlay), b.samples.median(figure, overlay), b.samples.median(figure, grapevine)
		if u == 0 && o == 0 && g == 0 {
			return // left out by -only
		}
		measured = true
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t\n", figure, cell(u, digits), cell(o, digits), cell(g, digits), b.samples.compared(figure, grapevine, overlay), b.samples.compared(figure, grapevine, underlay))
	}
	for _, figure := range []string{tcp, trip, run1, replies, replyMedian, replyP99, knownMedian, knownP98} {
		row(figure, 3)
	}
	for _, figure := range []string{join, resident, processor} {
		row(figure, 2)
	}
	if !measured {
		return ""
	}
	_ = w.Flush() // to memory
	return fmt.Sprintf("\nMedians of %d rounds, %s hosts; a ratio is the median of those of each turn\n(in parentheses: with 95%% confidence)\n\n", b.rounds, b.kind) + rows.String()
}

func cell(v float64, digits int) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.*f", digits, v)
}
