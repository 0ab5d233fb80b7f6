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
		t.Connections = rates(first.Connections, t.Connections, time.Since(began))
	}
	return t, err
}

// rates are the connections of which something passed since before, and how much a second, the most bytes first.
func rates(before, now []api.Connection, since time.Duration) []api.Connection {
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
	second := func(now, before uint64) uint64 {
		if now < before { // it was forgotten, and came again
			before = 0
		}
		return uint64(math.Ceil(float64(now-before) / since.Seconds()))
	}
	list := []api.Connection{}
	for _, c := range now {
		was := had[of(c)]
		c.Packets, c.Bytes = second(c.Packets, was.Packets), second(c.Bytes, was.Bytes)
		c.BackPackets, c.BackBytes = second(c.BackPackets, was.BackPackets), second(c.BackBytes, was.BackBytes)
		if c.Packets+c.BackPackets > 0 {
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b api.Connection) int {
		return cmp.Compare(b.Bytes+b.BackBytes, a.Bytes+a.BackBytes)
	})
	return list
}
