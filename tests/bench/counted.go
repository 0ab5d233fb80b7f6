package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// Turns of counted.
const (
	counting   = "counted"
	uncounting = "not counted"
)

// counted measures what it costs that containers' packets are counted (grapevine traffic), between two hosts and to the outside: agents
// count in one turn and do not in the next.
func (m more) counted(ctx context.Context) error {
	b := m.b
	client, err := b.lab.Hosts[0].Container(ctx, grapevine+"-end")
	if err != nil {
		return err
	}
	var two path
	for _, p := range b.paths {
		if p.name == grapevine {
			two = p
		}
	}
	if two.client == nil {
		return errors.New("there is no path between two hosts")
	}
	got := samples{}
	for round := range b.rounds {
		for i := range 2 {
			way := []string{uncounting, counting}[(round+i)%2]
			if err := m.count(ctx, way, client, two.addr); err != nil {
				return fmt.Errorf("%s: %w", way, err)
			}
			for range 4 {
				out, err := client.Cast(ctx, "pace", netip.AddrPortFrom(two.addr, 9).String(), "20000")
				if err != nil {
					return err
				}
				var low, mid float64
				if _, err := fmt.Sscan(out, &low, &mid); err != nil {
					return fmt.Errorf("%q: %w", out, err)
				}
				got.add(quickest, way, low)
				got.add(middling, way, mid)
				rate, err := b.throughput(ctx, two)
				if err != nil {
					return err
				}
				got.add(tcp, way, rate)
				ms, err := exactTrip(ctx, two, pings)
				if err != nil {
					return err
				}
				got.add(trip, way, ms)
			}
		}
	}
	for _, figure := range []string{quickest, middling, tcp, trip} {
		progress("      %s: %.3f; %s %.3f; ratio %s", figure, got.median(figure, uncounting), counting, got.median(figure, counting), got.compared(figure, counting, uncounting))
	}
	return nil
}

// count has agents that count, or that do not, and waits until packets go as they did.
func (m more) count(ctx context.Context, way string, client lab.Container, to netip.Addr) error {
	env := map[string]string{counting: "GRAPEVINE_TRAFFIC=on", uncounting: "GRAPEVINE_TRAFFIC=off"}[way]
	for _, h := range m.b.lab.Hosts[:2] {
		if err := h.StopAgent(ctx); err != nil {
			return err
		}
		if err := h.StartAgent(ctx, env); err != nil {
			return err
		}
	}
	if err := client.Reach(ctx, time.Minute*m.b.patience, to); err != nil {
		return err
	}
	if err := m.b.goThrough(ctx, "", "fast path   direct"); err != nil {
		return err
	}
	if way == uncounting {
		return nil
	}
	said, err := m.b.lab.Hosts[0].Grapevine(ctx, "traffic", client.Name)
	if err == nil && !strings.Contains(said, "0 packets lost") {
		err = fmt.Errorf("nothing is counted: %s", said)
	}
	return err
}
