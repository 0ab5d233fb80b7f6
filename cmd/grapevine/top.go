package main

import (
	"cmp"
	"context"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/api"
)

// looked is for how long `traffic --top` looks.
const looked = 2 * time.Second

// passingNow asks once more a moment after first, and is what passed between the two, a second.
func passingNow(ctx context.Context, c *api.Client, of api.TrafficOf, first api.Traffic) (api.Traffic, error) {
	began := time.Now()
	select {
	case <-ctx.Done():
		return first, ctx.Err()
	case <-time.After(looked):
	}
	t, err := c.Traffic(ctx, of)
	if err == nil {
		t.Connections = rates(first, t, time.Since(began))
	}
	return t, err
}

// spans are pure: how long each host counted between two answers, by its own clock: another one that answers late keeps the whole answer. Who
// was not heard the first time has counted since it began.
func spans(before, now []api.TrafficHost) map[string]time.Duration {
	began, list := map[string]time.Time{}, map[string]time.Duration{}
	for _, h := range before {
		if h.Error == "" {
			began[h.Name] = h.At
		}
	}
	for _, h := range now {
		from := began[h.Name]
		if from.IsZero() || from.Before(h.Since) {
			from = h.Since
		}
		if h.Error == "" && h.At.After(from) && !from.IsZero() {
			list[h.Name] = h.At.Sub(from)
		}
	}
	return list
}

// rates are the connections of which something passed since before, and how much a second, the most bytes first. since is for what hosts of
// older agents counted.
func rates(first, then api.Traffic, since time.Duration) []api.Connection {
	before, now, counted := first.Connections, then.Connections, spans(first.Hosts, then.Hosts)
	long := func(ends ...api.TrafficEnd) float64 { // the host that counted is that of the first end, or else the other's
		for _, e := range ends {
			if d, known := counted[cmp.Or(e.Host, e.Name)]; known {
				return d.Seconds()
			}
			if e.Host != "" {
				break
			}
		}
		return since.Seconds()
	}
	type key struct {
		proto    string
		from, to netip.AddrPort
		networks [2]string // addresses may be those of several
	}
	of := func(c api.Connection) key {
		return key{c.Proto, netip.AddrPortFrom(c.From.Addr, c.From.Port), netip.AddrPortFrom(c.To.Addr, c.To.Port), [2]string{c.From.Network, c.To.Network}}
	}
	had := map[key]api.Connection{}
	for _, c := range before {
		had[of(c)] = c
	}
	second := func(now, before uint64, seconds float64) uint64 {
		if now < before { // it was forgotten, and came again
			before = 0
		}
		return uint64(math.Ceil(float64(now-before) / seconds))
	}
	list := []api.Connection{}
	for _, c := range now {
		was := had[of(c)]
		there, back := long(c.From, c.To), long(c.To, c.From)
		c.Packets, c.Bytes = second(c.Packets, was.Packets, there), second(c.Bytes, was.Bytes, there)
		c.BackPackets, c.BackBytes = second(c.BackPackets, was.BackPackets, back), second(c.BackBytes, was.BackBytes, back)
		if c.Packets+c.BackPackets > 0 {
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b api.Connection) int {
		return cmp.Compare(b.Bytes+b.BackBytes, a.Bytes+a.BackBytes)
	})
	return list
}
