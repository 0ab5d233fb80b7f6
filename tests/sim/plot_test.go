package sim

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Sizes of the plot, in pixels, and the times at its lower and upper end.
const (
	plotLeft, plotTop, plotHigh, plotColumn = 60, 50, 260, 90
	plotLegend                              = 150 // of one kind
	plotLow, plotMost                       = 10 * time.Millisecond, 200 * time.Second
	aim                                     = 1500 * time.Millisecond // p99, without loss
)

var plotted = []struct{ kind, colour string }{
	{"network created", "#4477aa"}, {"endpoint up", "#228833"}, {"endpoint up, under churn", "#aa3377"},
}

// plotY is where a time stands; the scale is logarithmic.
func plotY(d time.Duration) float64 {
	share := math.Log(float64(max(d, plotLow))/float64(plotLow)) / math.Log(float64(plotMost)/float64(plotLow))
	return plotTop + plotHigh*(1-share)
}

// svg draws, for each cluster, how long it takes until a host knows: a line from the median
// to the worst, with a dot at the median and a bar at the 99th percentile.
func (r report) svg() string {
	var b strings.Builder
	width := plotLeft + max(plotColumn*len(r), plotLegend*len(plotted)) + 20
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n", width, plotTop+plotHigh+50)
	fmt.Fprintln(&b, `<rect width="100%" height="100%" fill="white"/>`)
	for i, p := range plotted {
		fmt.Fprintf(&b, `<circle cx="%d" cy="16" r="4" fill="%s"/><text x="%d" y="20">%s</text>`+"\n", plotLeft+i*plotLegend, p.colour, plotLeft+8+i*plotLegend, p.kind)
	}
	for d := plotLow; d <= plotMost; d *= 10 {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="4" y="%.1f">%v</text>`+"\n", plotLeft, plotY(d), width, plotY(d)+4, d)
	}
	fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#888" stroke-dasharray="4"/>`+"\n", plotLeft, plotY(aim), width)
	for i, res := range r {
		x := plotLeft + plotColumn*i + plotColumn/2
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%d hosts</text><text x="%d" y="%d" text-anchor="middle">%d%% loss</text>`+"\n",
			x, plotTop+plotHigh+18, res.hosts, x, plotTop+plotHigh+34, res.loss)
		for j, p := range plotted {
			t := res.times[p.kind]
			if t == nil || len(t.each) == 0 {
				continue
			}
			x, median, most := x+(j-1)*20, plotY(at(t.each, 50)), plotY(at(t.each, 100))
			fmt.Fprintf(&b, `<path d="M%d %.1fV%.1fM%d %.1fh10" stroke="%s" stroke-width="2"/><circle cx="%d" cy="%.1f" r="4" fill="%s"/>`+"\n",
				x, median, most, x-5, plotY(at(t.each, 99)), p.colour, x, median, p.colour)
		}
	}
	fmt.Fprintln(&b, `</svg>`)
	return b.String()
}
