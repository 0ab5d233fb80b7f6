package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/api"
)

// mostWays are those of a service that are traced.
const mostWays = 4

// traceLed asks for the ways to where a connection is led.
func traceLed(ctx context.Context, c *api.Client, r api.TraceRequest, l api.Lead) (traced, error) {
	t := traced{Led: &l, NotTried: []string{}}
	name := func(b api.LeadBack) string {
		return fmt.Sprintf("%s on host %s", cmp.Or(b.Name, b.Addr.String()), b.Host)
	}
	for _, b := range l.Backs {
		switch {
		case !b.In || l.Wrong != "":
			continue
		case len(t.Ways) == mostWays:
			t.NotTried = append(t.NotTried, "the way to "+name(b))
			continue
		}
		to := r
		to.From, to.To, to.Port, to.By = cmp.Or(l.From, r.From), b.Addr.String(), b.Port, l.By
		way, err := traceWay(ctx, c, to, nil)
		if err != nil {
			t.NotTried = append(t.NotTried, fmt.Sprintf("the way to %s: %v", name(b), err))
			continue
		}
		t.Ways = append(t.Ways, way)
	}
	return judgeLed(t, r.From), nil
}

// judgeLed is pure: the verdict on a connection that is led elsewhere. from is the client, as somebody named it.
func judgeLed(t traced, from string) traced {
	l := *t.Led
	if len(t.Ways) > 0 { // what the ways have in common, and programs read
		t.Explanation = t.Ways[0].Explanation
	}
	wrong := func(do, format string, args ...any) traced {
		t.Wrong, t.Do, t.Verdict = true, do, fmt.Sprintf("%s does not reach %s: ", from, l.Name)+fmt.Sprintf(format, args...)
		return t
	}
	if l.Wrong != "" {
		return wrong(l.Do, "%s", l.Wrong)
	}
	if what, do := ledWrong(l, from); what != "" {
		return wrong(do, "%s", what)
	}
	bad := slices.IndexFunc(t.Ways, func(w traced) bool { return w.Wrong })
	switch {
	case bad >= 0 && len(t.Ways) == 1:
		t.Explanation = t.Ways[bad].Explanation
		if way := t.Ways[bad]; strings.Contains(way.Verdict, "; yet ") { // a packet was answered
			t.Wrong, t.Do, t.Verdict = true, way.Do, fmt.Sprintf("%s leads to %s; %s", l.Name, peerName(t.To), way.Verdict)
			return t
		}
		return wrong(t.Ways[bad].Do, "it leads to %s; %s", peerName(t.To), t.Ways[bad].Verdict)
	case bad >= 0:
		t.Explanation = t.Ways[bad].Explanation
		n := 0
		for _, w := range t.Ways {
			if w.Wrong {
				n++
			}
		}
		t.Wrong, t.Do = true, t.Ways[bad].Do
		t.Verdict = fmt.Sprintf("%s does not reach %d of %d containers behind %s: %s", from, n, len(t.Ways), l.Name, t.Ways[bad].Verdict)
	case l.Sent != nil && l.Sent.Answer != "":
		t.Verdict = fmt.Sprintf("%s reaches %s: a connection went to %s, and the answer came back after %.2f ms.", from, l.Name, backName(l, l.Sent.To), l.Sent.Milliseconds)
	case slices.ContainsFunc(t.Ways, func(w traced) bool { return w.Unknown }):
		way := t.Ways[slices.IndexFunc(t.Ways, func(w traced) bool { return w.Unknown })]
		t.Unknown, t.Do, t.Verdict = true, way.Do, way.Verdict
	case l.Sent != nil && l.Sent.Failed:
		t.Unknown, t.Verdict = true, fmt.Sprintf("It is not known whether %s reaches %s: a packet from within the container could not be sent: %s.", from, l.Name, l.Sent.Error)
	default:
		t.Verdict = fmt.Sprintf("Nothing was found in the way from %s to %s, which leads to %s.", from, l.Name, strings.Join(into(l), ", "))
	}
	return t
}

// ledWrong says what is wrong with where a container's own rules lead a real packet.
func ledWrong(l api.Lead, from string) (what, do string) {
	const again = "its agent puts them back within ten seconds, and `grapevine status` there names it if it cannot: restart the container; one with NET_ADMIN may have changed its own rules"
	switch p := l.Sent; {
	case p == nil:
		return "", ""
	case p.Held || strings.HasSuffix(p.Error, "operation not permitted"):
		return fmt.Sprintf("the rules inside %s refuse it", from), again
	case p.Stuck:
		return "it cannot send: " + p.Error, "look at ip addr and ip route inside the container"
	case p.Error != "" || len(p.Points) == 0:
		return "", ""
	case !p.Points[0].Seen:
		return "its packet does not leave it: its own routes, or a firewall inside of it, hold it back", "look at ip route and nft list ruleset inside the container"
	case !p.To.IsValid():
		return fmt.Sprintf("it is not led: the packet leaves %s for the service's own address; the rules inside of it are gone, or others", from), again
	case !slices.ContainsFunc(l.Backs, func(b api.LeadBack) bool { return b.In && b.Addr == p.To.Addr() }):
		return fmt.Sprintf("the rules inside %s lead it to %s, and not to one of %s", from, backName(l, p.To), strings.Join(into(l), ", ")), again
	}
	return "", ""
}

// into are the containers that new connections are led to.
func into(l api.Lead) (list []string) {
	for _, b := range l.Backs {
		if b.In {
			list = append(list, fmt.Sprintf("%s on host %s", cmp.Or(b.Name, b.Addr.String()), b.Host))
		}
	}
	return list
}

func backName(l api.Lead, at netip.AddrPort) string {
	for _, b := range l.Backs {
		if b.Addr == at.Addr() {
			return fmt.Sprintf("%s on host %s", cmp.Or(b.Name, b.Addr.String()), b.Host)
		}
	}
	return at.String()
}

// leaves says with which address a connection leaves for the outside.
func leaves(t traced, l api.Lead) traced {
	t.Notes = append(t.Notes, l.Notes...)
	e := l.Egress
	if e == nil {
		return t
	}
	t.Led = &l
	if e.Wrong != "" && t.Allowed {
		t.Wrong, t.Do = true, e.Do
		t.Verdict = fmt.Sprintf("%s does not reach %s: what containers of %s send to the outside leaves by egress %s: %s", peerName(t.From), peerName(t.To), e.Network, e.Name, e.Wrong)
	}
	return t
}

func showLed(w io.Writer, l api.Lead) {
	if e := l.Egress; e != nil {
		how := fmt.Sprintf("with %s, which host %s holds", e.Addr, e.Holder)
		if e.Wrong != "" {
			how = e.Wrong
		}
		fmt.Fprintf(w, "egress %s of network %s: %s\n", e.Name, e.Network, how)
	}
	if l.Kind == "" {
		return
	}
	at := l.Addr.String()
	if l.Port != 0 {
		at = netip.AddrPortFrom(l.Addr, l.Port).String()
	}
	fmt.Fprintf(w, "%s (%s)\n", l.Name, at)
	for _, b := range l.Backs {
		to := b.Addr.String()
		if b.Port != 0 {
			to = netip.AddrPortFrom(b.Addr, b.Port).String()
		}
		why := "leads to"
		if !b.In {
			why = "does not lead to"
		}
		line := fmt.Sprintf("  %s %s, %s, host %s", why, cmp.Or(b.Name, "a container"), to, b.Host)
		if b.Why != "" {
			line += ": " + b.Why
		}
		fmt.Fprintln(w, line)
	}
	for _, n := range l.Notes {
		fmt.Fprintln(w, "  "+n)
	}
	if p := l.Sent; p != nil && p.Error != "" {
		fmt.Fprintln(w, "  not tried: a packet to the service's address: "+p.Error)
	} else if p != nil {
		where := "not led elsewhere"
		if p.To.IsValid() {
			where = "led to " + backName(l, p.To)
		}
		fmt.Fprintf(w, "  does: one %s to %s: %s\n", p.What, at, where)
	}
}

// showWays shows what was found on the ways to where a connection is led.
func showWays(w io.Writer, t traced, flows bool) error {
	for _, way := range t.Ways {
		fmt.Fprintln(w)
		if err := showWay(w, way, flows); err != nil {
			return err
		}
	}
	for _, n := range t.NotTried {
		fmt.Fprintln(w, "not tried: "+n)
	}
	return nil
}
