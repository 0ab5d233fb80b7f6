package main

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// A limit counts frames with their headers (docs/use/limits.md), and iperf3 what is in TCP: at the containers' MTU, with timestamps.
const (
	containersMTU = 1450
	framed        = float64(containersMTU+14) / (containersMTU - 52)
)

// limits has containers with limits of 1 Mbit/s to 1 Gbit/s send to and get from a container of the same host, one of another
// one, with the fast path and direct, and the outside. A figure is the share of the limit that is reached, in frames.
func (m more) limits(ctx context.Context) error {
	b := m.b
	if b.kind != "namespace" {
		return nil
	}
	one, two := b.lab.Hosts[0], b.lab.Hosts[1]
	ends := map[*lab.Host]lab.Container{}
	for _, h := range b.lab.Hosts {
		if _, err := h.Docker(ctx, "run", "-d", "--name", "unlimited", "--network", grapevine, lab.Image, "sleep", "100000"); err != nil {
			return err
		}
		c, err := h.Container(ctx, "unlimited")
		if err != nil {
			return err
		}
		ends[h] = c
		if err := serve(ctx, path{name: "unlimited", server: c.Exec}); err != nil {
			return err
		}
	}
	if err := serve(ctx, path{name: "outside", server: b.lab.Outside.Program}); err != nil {
		return err
	}
	for _, megabits := range []float64{1, 10, 100, 1000} {
		name, rate := fmt.Sprint("limited", megabits), fmt.Sprint(megabits, "mbit")
		if _, err := one.Docker(ctx, "run", "-d", "--name", name, "--network", "name="+grapevine+",driver-opt=egress="+rate+",driver-opt=ingress="+rate, lab.Image, "sleep", "100000"); err != nil {
			return err
		}
		c, err := one.Container(ctx, name)
		if err != nil {
			return err
		}
		if err := c.Reach(ctx, 30*1e9*b.patience, ends[two].Addrs[grapevine][0]); err != nil {
			return err
		}
		for _, p := range []path{
			{name: "the same host", addr: ends[one].Addrs[grapevine][0]},
			{name: "another host", addr: ends[two].Addrs[grapevine][0]},
			{name: direct, addr: ends[two].Addrs[grapevine][0]},
			{name: "outside", addr: netip.MustParseAddr(lab.OutsideAddr)},
		} {
			p.client = c.Exec
			mode := "on"
			if p.name == direct {
				mode = "direct"
			}
			for _, h := range b.lab.Hosts {
				if _, err := h.Grapevine(ctx, "fastpath", mode); err != nil {
					return err
				}
			}
			line := []string{fmt.Sprintf("      limit %s, %s:", rate, p.name)}
			for way, args := range map[string][]string{"sends": nil, "gets": {"-R"}} {
				var got []float64
				for range b.rounds {
					r, err := b.iperf(ctx, p, append(args, "-O", "1")...)
					if err != nil {
						return err
					}
					got = append(got, r.Received.Rate*framed/megabits/1e6)
				}
				line = append(line, way, strconv.FormatFloat(median(got), 'f', 3, 64), fmt.Sprintf("%.3f", got))
			}
			progress("%s", strings.Join(line, " "))
		}
		if _, err := one.Docker(ctx, "rm", "-f", name); err != nil {
			return err
		}
	}
	return nil
}
