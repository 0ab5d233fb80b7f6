package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// fault is something bad that happens to hosts, and its end.
type fault struct {
	name     string
	hosts    int // how many it takes: 2 are the ends of a wire
	packets  bool
	commands bool // of its hosts may fail
	do, undo func(context.Context, *lab.Lab, []*lab.Host) error
}

// one is an act on a single host.
func one(do func(*lab.Host, context.Context) error) func(context.Context, *lab.Lab, []*lab.Host) error {
	return func(ctx context.Context, _ *lab.Lab, on []*lab.Host) error { return do(on[0], ctx) }
}

func nothing(context.Context, *lab.Lab, []*lab.Host) error { return nil }

func killOVS(daemon string) func(context.Context, *lab.Lab, []*lab.Host) error {
	return one(func(h *lab.Host, ctx context.Context) error {
		_, err := h.Exec(ctx, "sh", "-c", "kill -9 $(cat /run/grapevine/ovs/"+daemon+".pid)")
		return err
	})
}

// heal mends the wires of a fault; those of others are not cut any more either, which
// their Fault does not say, but only excuses more.
func heal(ctx context.Context, l *lab.Lab, _ []*lab.Host) error { return l.Wire.Heal(ctx) }

func cutOff(ctx context.Context, l *lab.Lab, on []*lab.Host) error {
	var errs []error
	for _, h := range l.Hosts {
		if h != on[0] {
			errs = append(errs, l.Wire.Cut(ctx, h.Name, on[0].Name))
		}
	}
	return errors.Join(errs...)
}

const (
	lossPercent = 20
	slowKbit    = 300
	floodFor    = 3 * time.Second
)

// setClock sets a host's time of day, which hosts that are namespaces share.
func setClock(to func() time.Time) func(context.Context, *lab.Lab, []*lab.Host) error {
	return one(func(h *lab.Host, ctx context.Context) error {
		_, err := h.Exec(ctx, "date", "-s", fmt.Sprint("@", to().Unix()))
		return err
	})
}

const year = 365 * 24 * time.Hour

// table is what strikes hosts of a kind, of what is wanted: those with kernels have clocks,
// and disks that are no tmpfs to be resized.
func (s settings) table() []fault {
	list := slices.Clone(faults)
	if s.kind != lab.Namespace {
		list = append(slices.DeleteFunc(list, func(f fault) bool { return f.name == "disk-full" }), clocks...)
	}
	if len(s.only) == 0 {
		return list
	}
	return slices.DeleteFunc(list, func(f fault) bool { return !slices.Contains(s.only, f.name) })
}

// clocks are set so that leases, tombstones and keys seem to be of the future, or long past.
var clocks = []fault{
	{"clock-ahead", 1, false, true, setClock(func() time.Time { return time.Now().Add(year) }), setClock(time.Now)},
	{"clock-of-1970", 1, false, true, setClock(func() time.Time { return time.Unix(100, 0) }), setClock(time.Now)},
}

// faults are all that can strike any host.
var faults = []fault{
	{"agent-killed", 1, false, true, one((*lab.Host).KillAgent), one(func(h *lab.Host, ctx context.Context) error { return startAgent(ctx, h) })},
	{"ovs-vswitchd-killed", 1, true, true, killOVS("ovs-vswitchd"), nothing},
	{"ovsdb-server-killed", 1, false, true, killOVS("ovsdb-server"), nothing},
	{"dockerd-killed", 1, false, true, one((*lab.Host).KillDocker), one((*lab.Host).StartDocker)},
	{"power-lost", 1, true, true, one(func(h *lab.Host, _ context.Context) error { return h.PowerOff() }), one((*lab.Host).Boot)},
	{"disk-full", 1, false, true, one(func(h *lab.Host, _ context.Context) error { return h.FillDisk() }), one(func(h *lab.Host, ctx context.Context) error { return freeDisk(ctx, h) })},
	{"cut-off", 1, true, false, cutOff, heal},
	{"wire-cut", 2, true, false, func(ctx context.Context, l *lab.Lab, on []*lab.Host) error {
		return l.Wire.Cut(ctx, on[0].Name, on[1].Name)
	}, heal},
	{"wire-one-way", 2, true, false, func(ctx context.Context, l *lab.Lab, on []*lab.Host) error {
		return l.Wire.CutOneWay(ctx, on[0].Name, on[1].Name)
	}, heal},
	{"wire-lossy", 2, true, false, func(ctx context.Context, l *lab.Lab, on []*lab.Host) error {
		return errors.Join(l.Wire.Loss(ctx, on[0].Name, on[1].Name, lossPercent), l.Wire.Loss(ctx, on[1].Name, on[0].Name, lossPercent))
	}, heal},
	{"wire-slow", 1, true, false, func(ctx context.Context, l *lab.Lab, on []*lab.Host) error {
		return l.Wire.Slow(ctx, on[0].Name, slowKbit)
	}, func(ctx context.Context, l *lab.Lab, on []*lab.Host) error { return l.Wire.Slow(ctx, on[0].Name, 0) }},
	{"gossip-flooded", 2, false, false, func(ctx context.Context, _ *lab.Lab, on []*lab.Host) error {
		return lab.Flood(ctx, on[1], fmt.Sprint(on[0].Addr(), ":7947"), floodFor)
	}, nothing},
}

// startAgent is what a service manager does with an agent that ended.
func startAgent(ctx context.Context, h *lab.Host) error {
	running, err := h.Running(ctx, "agent")
	if err != nil || running {
		return err
	}
	return h.StartAgent(ctx)
}

// freeDisk: an agent that could not write may have ended.
func freeDisk(ctx context.Context, h *lab.Host) error {
	return errors.Join(h.FreeDisk(), startAgent(ctx, h))
}

func find(name string) fault {
	for _, f := range slices.Concat(faults, clocks) {
		if f.name == name {
			return f
		}
	}
	panic("no fault is called " + name)
}
