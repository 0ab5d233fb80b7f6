package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// The networks that are compared.
const (
	overlay   = "overlay"
	grapevine = "grapevine"
	underlay  = "underlay"
)

// path is one way between the two hosts: from where a client runs, and the
// server's address.
type path struct {
	name   string
	client runner
	server runner
	addr   netip.Addr
}

// runner runs a program at one end of a path.
type runner func(ctx context.Context, argv ...string) (string, error)

// bench is a lab with both overlays in it, and the samples taken so far.
type bench struct {
	options
	lab     *lab.Lab
	paths   []path
	samples samples

	tables  []place // of which there are samples
	machine string  // on what they were taken
	spent   float64 // processor time of the last TCP measurement, seconds per Gbit
}

func newBench(ctx context.Context, o options) (*bench, error) {
	opts := lab.Options{
		Hosts: 2, Swarm: true, Tree: o.tree,
		AgentEnv: []string{"GRAPEVINE_LOG_LEVEL=debug", "GRAPEVINE_FASTPATH=" + o.fast},
		Progress: func(line string) { progress("      %s", line) },
	}
	switch o.kind {
	case "namespace":
	case "uml":
		opts.Kind = lab.UML
	default:
		return nil, fmt.Errorf("unknown kind of host %q: namespace or uml", o.kind)
	}
	l, err := lab.New(ctx, opts)
	if err != nil {
		return nil, err
	}
	b := &bench{options: o, lab: l, samples: samples{}}
	if err := b.setUp(ctx); err != nil {
		_ = l.Close()
		return nil, err
	}
	return b, nil
}

func (b *bench) setUp(ctx context.Context) error {
	if err := b.lab.StartAgents(ctx); err != nil {
		return err
	}
	if err := b.joinSwarm(ctx); err != nil {
		return fmt.Errorf("set up the swarm to compare with: %w", err)
	}
	one := b.lab.Hosts[0]
	if _, err := one.Docker(ctx, "network", "create", "-d", overlay, "--attachable", overlay); err != nil {
		return err
	}
	if err := lab.Eventually(ctx, time.Minute, func() error { // until the cluster is there
		_, err := one.Docker(ctx, "network", "create", "-d", "grapevine", "--ipam-driver", "grapevine", grapevine)
		return err
	}); err != nil {
		return err
	}
	b.paths = []path{{underlay, one.Exec, b.lab.Hosts[1].Exec, b.lab.Hosts[1].Addr()}}
	for _, network := range []string{overlay, grapevine} {
		p, err := b.containers(ctx, network)
		if err != nil {
			return err
		}
		b.paths = append(b.paths, p)
	}
	return nil
}

// joinSwarm makes one swarm of the hosts. Its VXLAN port is not the agents' own.
func (b *bench) joinSwarm(ctx context.Context) error {
	one, two := b.lab.Hosts[0], b.lab.Hosts[1]
	if _, err := one.Docker(ctx, "swarm", "init", "--advertise-addr", one.Addr().String(), "--data-path-port", "4790"); err != nil {
		return err
	}
	token, err := one.Docker(ctx, "swarm", "join-token", "-q", "worker")
	if err != nil {
		return err
	}
	_, err = two.Docker(ctx, "swarm", "join", "--token", strings.TrimSpace(token), one.Addr().String()+":2377")
	return err
}

// containers starts one container a host on a network and waits until they reach
// each other.
func (b *bench) containers(ctx context.Context, network string) (path, error) {
	var ends [2]lab.Container
	for i, h := range b.lab.Hosts {
		name := network + "-end"
		if err := lab.Eventually(ctx, 2*time.Minute, func() error {
			_, _ = h.Docker(ctx, "rm", "-f", name)
			_, err := h.Docker(ctx, "run", "-d", "--name", name, "--network", network, lab.Image, "sleep", "100000")
			return err
		}); err != nil {
			return path{}, fmt.Errorf("%w; the end of %s's dockerd.log:\n%s", err, h.Name, h.Log("dockerd", 30))
		}
		c, err := h.Container(ctx, name)
		if err != nil {
			return path{}, err
		}
		ends[i] = c
	}
	addr := ends[1].Addrs[network][0]
	return path{network, ends[0].Exec, ends[1].Exec, addr}, ends[0].Reach(ctx, 30*time.Second, addr)
}
