package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/grapevine-net/grapevine/api"
)

// inTheWay is pure: the first hop that does not do with the packet what ought to be done, and what to do.
func inTheWay(t *api.Trace) (what, do string) {
	if t == nil {
		return "", ""
	}
	for _, way := range []struct {
		packet string
		hops   []api.TraceHop
	}{{"the packet", t.There}, {"the answer", t.Back}} {
		for _, hop := range way.hops {
			switch {
			case hop.FastPath == "differs":
				return fmt.Sprintf("the fast path of host %s takes %s %s, its switch %s: what the fast path knows is not what it ought to be", hop.Host, way.packet, hop.FastTo, hopEnd(hop)),
					fmt.Sprintf("on host %s: grapevine fastpath off, then grapevine fastpath auto, which sets it anew; and report this", hop.Host)
			case hop.End == "dropped" || hop.End == "other":
				return fmt.Sprintf("it ought to, but the switch of host %s would have %s %s", hop.Host, way.packet, hopEnd(hop)),
					fmt.Sprintf("on host %s: grapevine status; its agent puts flows back that somebody changed, within 30 s: if it stays so, grapevine report", hop.Host)
			}
		}
	}
	return "", ""
}

// hopEnd is where a packet's way through a host ends, in words.
func hopEnd(h api.TraceHop) string {
	switch h.End {
	case "dropped":
		return "dropped at " + decided(h)
	case "outside":
		return "to its host, by the gateway"
	case "other":
		return h.Where
	}
	return strings.TrimSpace("to " + h.End + " " + h.Where)
}

// decided is the flow that decided: "forwarding, by range 10.128.1.0/24".
func decided(h api.TraceHop) string {
	if len(h.Steps) == 0 {
		return "no flow"
	}
	last := h.Steps[len(h.Steps)-1]
	if h.End != "dropped" { // the end is of no object: what chose it is
		for _, s := range h.Steps {
			if s.Stage == "forwarding" {
				last = s
			}
		}
	}
	return last.Stage + ": " + cmp.Or(strings.TrimPrefix(last.Object, "drop: "), "as always there")
}

// fastWords is what the fast path does.
var fastWords = map[string]string{"carries": "the fast path carries it so", "leaves": "the fast path leaves it to the switch", "off": "no fast path"}

func showWould(w io.Writer, t api.Trace, flows bool) {
	for _, way := range []struct {
		name string
		hops []api.TraceHop
	}{{"there", t.There}, {"back", t.Back}} {
		for _, hop := range way.hops {
			if hop.Error != "" {
				fmt.Fprintf(w, "  would, %s: host %s cannot say: %s\n", way.name, hop.Host, hop.Error)
				continue
			}
			fast := fastWords[hop.FastPath]
			if hop.Plain {
				fast += ", in WireGuard without VXLAN"
			}
			if hop.FastPath == "differs" {
				fast = "the fast path DIFFERS: " + hop.FastTo
			}
			by := " (" + decided(hop) + ")"
			if hop.End == "dropped" {
				by = ""
			}
			fmt.Fprintf(w, "  would, %s: host %s: %s%s; %s\n", way.name, hop.Host, hopEnd(hop), by, fast)
			for _, s := range hop.Steps {
				if flows {
					fmt.Fprintf(w, "    %-18s %s\n", s.Stage, strings.TrimSpace(s.Object+"  "+s.Flow))
				}
			}
		}
	}
}
