package sim

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// plot is a chart with columns and a logarithmic scale.
type plot struct {
	low, most float64
	unit      string // of the scale: %v is a power of ten
	aim       float64
	legend    []mark
}

type mark struct{ what, colour string }

// Sizes in pixels.
const (
	plotLeft, plotTop, plotHigh, plotColumn = 60, 50, 260, 105
	plotLegend                              = 165 // of one kind
)

// y is where a value stands.
func (p plot) y(v float64) float64 {
	return plotTop + plotHigh*(1-math.Log(max(v, p.low)/p.low)/math.Log(p.most/p.low))
}

// draw makes the chart; column draws what is in one, around its middle. Below it are two lines.
func (p plot) draw(columns [][2]string, column func(b *strings.Builder, i, x int)) string {
	var b strings.Builder
	width := plotLeft + max(plotColumn*len(columns), plotLegend*len(p.legend)) + 20
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n", width, plotTop+plotHigh+50)
	fmt.Fprintln(&b, `<rect width="100%" height="100%" fill="white"/>`)
	for i, m := range p.legend {
		fmt.Fprintf(&b, `<circle cx="%d" cy="16" r="4" fill="%s"/><text x="%d" y="20">%s</text>`+"\n", plotLeft+i*plotLegend, m.colour, plotLeft+8+i*plotLegend, m.what)
	}
	for v := p.low; v <= p.most; v *= 10 {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="4" y="%.1f">`+p.unit+"</text>\n", plotLeft, p.y(v), width, p.y(v)+4, v)
	}
	if p.aim > 0 {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#888" stroke-dasharray="4"/>`+"\n", plotLeft, p.y(p.aim), width)
	}
	for i, lines := range columns {
		x := plotLeft + plotColumn*i + plotColumn/2
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text><text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n",
			x, plotTop+plotHigh+18, lines[0], x, plotTop+plotHigh+34, lines[1])
		column(&b, i, x)
	}
	fmt.Fprintln(&b, `</svg>`)
	return b.String()
}

// bars draws values beside each other, in the colours of the legend.
func (p plot) bars(b *strings.Builder, x int, values ...float64) {
	for j, v := range values {
		if v > 0 {
			fmt.Fprintf(b, `<rect x="%d" y="%.1f" width="16" height="%.1f" fill="%s"/>`+"\n", x+10*(2*j-len(values))+2, p.y(v), plotTop+plotHigh-p.y(v), p.legend[j].colour)
		}
	}
}

// columns are the clusters.
func (r report) columns() (list [][2]string) {
	for _, s := range r {
		list = append(list, [2]string{fmt.Sprintf("%d hosts", s.Hosts), strings.Replace(s.lost(), "%", "% loss", 1)})
	}
	return list
}

// timesPlot shows, for each cluster, how long it takes until a host knows: a line from the median
// to the worst, with a dot at the median and a bar at the 99th percentile.
func (r report) timesPlot() string {
	p := plot{0.01, 10, "%g s", 1.5, []mark{
		{"network created", "#4477aa"},
		{"endpoint up", "#228833"},
		{"endpoint up, under churn", "#aa3377"},
		{"host joined", "#ccbb44"},
		{"host left", "#66ccee"},
		{"host died: it is doubted", "#ee6677"},
	}}
	for _, s := range r {
		for _, m := range p.legend {
			if t, ok := s.one(m.what); ok {
				p.most = max(p.most, t.Worst)
			}
		}
	}
	return p.draw(r.columns(), func(b *strings.Builder, i, x int) {
		s := r[i]
		for j, m := range p.legend {
			t, ok := s.one(m.what)
			if !ok {
				continue
			}
			x := x + (2*j-len(p.legend)+1)*6
			fmt.Fprintf(b, `<path d="M%d %.1fV%.1fM%d %.1fh8" stroke="%s" stroke-width="2"/><circle cx="%d" cy="%.1f" r="3" fill="%s"/>`+"\n",
				x, p.y(t.One), p.y(t.Worst), x-4, p.y(t.OneP99), m.colour, x, p.y(t.One), m.colour)
		}
	})
}

// one is the row of a kind of event of which it is known when each host knew.
func (s summary) one(kind string) (row, bool) {
	i := slices.IndexFunc(s.Rows, func(row row) bool { return row.Kind == kind })
	if i < 0 || s.Rows[i].One < 0 {
		return row{}, false
	}
	return s.Rows[i], true
}

// bytesPlot shows what a host sends.
func (r report) bytesPlot() string {
	p := plot{100, 1e6, "%.0f B/s", 0, []mark{{"at rest", "#4477aa"}, {"under churn", "#aa3377"}}}
	for _, s := range r {
		p.most = max(p.most, s.Rest, s.Churn)
	}
	return p.draw(r.columns(), func(b *strings.Builder, i, x int) { p.bars(b, x, r[i].Rest, r[i].Churn) })
}
