package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// The figures of multicast: what arrives on the other host, by its container's own address and by a group that it is a member
// of, and what the sender's Open vSwitch takes for each datagram that is sent.
const (
	group       = "239.1.2.3"
	arrived     = "datagrams that arrive (1/s)"
	switchTakes = "processor time of the sender's Open vSwitch for each (µs)"
)

// casting is for how long it is sent; what arrives in the first second counts.
const casting = 1500 * time.Millisecond

// multicast sends datagrams of 64 bytes from a container as fast as it can, to another host's own address and to a group, with
// the fast path, which carries both, and without.
func (m more) multicast(ctx context.Context) error {
	b := m.b
	one, two := b.lab.Hosts[0], b.lab.Hosts[1]
	if _, err := one.Docker(ctx, "network", "create", "-d", "grapevine", "--ipam-driver", "grapevine", "-o", "multicast=on", "cast"); err != nil {
		return err
	}
	if err := lab.Eventually(ctx, time.Minute*b.patience, func() error {
		_, err := two.Docker(ctx, "network", "inspect", "cast")
		return err
	}); err != nil {
		return err
	}
	if _, err := one.Docker(ctx, "run", "-d", "--name", "caster", "--network", "cast", lab.Image, "sleep", "100000"); err != nil {
		return err
	}
	for name, at := range map[string]string{"own": "0.0.0.0", "member": group} {
		if _, err := two.Docker(ctx, "run", "-d", "--name", name, "--network", "cast", "-v", "/lab/bin/labhost:/bin/cast", "-e", "GVLAB_ROLE=cast", lab.Image, "cast", "count", at+":5000", "1s"); err != nil {
			return err
		}
	}
	caster, err := one.Container(ctx, "caster")
	if err != nil {
		return err
	}
	own, err := two.Container(ctx, "own")
	if err != nil {
		return err
	}
	to := map[string]string{"own": own.Addrs["cast"][0].String(), "member": group}
	if err := caster.Reach(ctx, time.Minute, own.Addrs["cast"][0]); err != nil {
		return err
	}
	time.Sleep(5 * time.Second) // the other host has heard of the member
	for _, mode := range []string{"off", "on", "direct"} {
		for _, h := range b.lab.Hosts {
			if _, err := h.Grapevine(ctx, "fastpath", mode); err != nil {
				return err
			}
		}
		for range b.rounds {
			for _, name := range []string{"own", "member"} {
				if err := m.castOnce(ctx, caster, two, name, to[name]+":5000", name+", fast path "+mode); err != nil {
					return err
				}
			}
		}
	}
	for _, f := range []string{arrived, switchTakes} {
		for _, mode := range []string{"off", "on", "direct"} {
			u, m := "own, fast path "+mode, "member, fast path "+mode
			progress("      %s, fast path %s: own address %.1f, group %.1f; group / own %s", f, mode, b.samples.median(f, u), b.samples.median(f, m), b.samples.compared(f, m, u))
		}
	}
	return nil
}

var perSecond = regexp.MustCompile(`(\d+) a second`)

// castOnce sends to who counts in a container, and notes both figures.
func (m more) castOnce(ctx context.Context, caster lab.Container, at *lab.Host, name, to, path string) error {
	b := m.b
	lines := func() ([]string, error) {
		text, err := at.Docker(ctx, "logs", name)
		return perSecond.FindAllString(text, -1), err
	}
	before, err := lines()
	if err != nil {
		return err
	}
	spent, err := switchTime(ctx, caster.Host)
	if err != nil {
		return err
	}
	said, err := caster.Cast(ctx, "blast", to, casting.String())
	if err != nil {
		return err
	}
	after, err := switchTime(ctx, caster.Host)
	if err != nil {
		return err
	}
	sent, err := number(said)
	if err != nil {
		return err
	}
	b.samples.add(switchTakes, path, 1e6*(after-spent)/(sent*casting.Seconds()))
	return lab.Eventually(ctx, time.Minute*b.patience, func() error {
		now, err := lines()
		if err == nil && len(now) == len(before) {
			err = fmt.Errorf("%s on %s has counted nothing", name, at.Name)
		}
		if err != nil {
			return err
		}
		n, err := number(now[len(now)-1])
		b.samples.add(arrived, path, n)
		return err
	})
}

func number(said string) (float64, error) {
	m := perSecond.FindStringSubmatch(said)
	if m == nil {
		return 0, fmt.Errorf("no figure in %q", said)
	}
	return strconv.ParseFloat(m[1], 64)
}

// switchTime is the processor time of a host's ovs-vswitchd so far, in seconds.
func switchTime(ctx context.Context, h *lab.Host) (float64, error) {
	text, err := h.Exec(ctx, "sh", "-c", "cut -d' ' -f14,15 /proc/$(cat /run/grapevine/ovs/ovs-vswitchd.pid)/stat")
	if err != nil {
		return 0, err
	}
	var user, system float64
	const ticks = 100 // USER_HZ
	_, err = fmt.Sscan(strings.TrimSpace(text), &user, &system)
	return (user + system) / ticks, err
}
