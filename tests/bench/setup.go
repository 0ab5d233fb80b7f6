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
	bridge    = "bridge" // Docker's, to the outside
)

// path is one way between the two hosts: from where a client runs, and the
// server's address.
type path struct {
	name   string
	client runner
	server runner
	addr   netip.Addr
	ports  int // is added to those of the servers: where they are published
}

// runner runs a program at one end of a path.
type runner func(ctx context.Context, argv ...string) (string, error)

// bench is a lab with both overlays in it, and the samples taken so far.
type bench struct {
	options
	lab     *lab.Lab
	paths   []path
	samples samples

	patience time.Duration // factor of waiting times

	tables  []place // of which there are samples
	machine string  // on what they were taken
	served  []path  // to services, of which there are samples
	spent   float64 // processor time of the last TCP measurement, seconds per Gbit
}

func newBench(ctx context.Context, o options) (*bench, error) {
	opts := lab.Options{
		Hosts: 2, Swarm: o.overlay, Tree: o.tree,
		AgentEnv: []string{"GRAPEVINE_LOG_LEVEL=debug", "GRAPEVINE_FASTPATH=" + o.fast},
		Progress: func(line string) { progress("      %s", line) },
	}
	switch o.kind {
	case "namespace":
	case "uml":
		opts.Kind, opts.Modules = lab.UML, o.modules
	case qemu:
		opts.Tree = "" // the guest's own files are that tree
	default:
		return nil, fmt.Errorf("unknown kind of host %q: namespace, uml or qemu", o.kind)
	}
	l, err := lab.New(ctx, opts)
	if err != nil {
		return nil, err
	}
	b := &bench{options: o, lab: l, samples: samples{}, patience: opts.Patience()}
	if err := b.setUp(ctx); err != nil {
		_ = l.Close()
		return nil, err
	}
	return b, nil
}

func (b *bench) setUp(ctx context.Context) error {
	begin := time.Now()
	step := func(what string) { progress("      %s (%.1f s)", what, time.Since(begin).Seconds()) }
	if err := b.lab.StartAgents(ctx); err != nil {
		return err
	}
	step("the agents answer")
	one := b.lab.Hosts[0]
	if b.overlay {
		if err := b.joinSwarm(ctx); err != nil {
			return fmt.Errorf("set up the swarm to compare with: %w", err)
		}
		step("the hosts are a swarm")
		if _, err := one.Docker(ctx, "network", "create", "-d", overlay, "--attachable", overlay); err != nil {
			return err
		}
	}
	if err := lab.Eventually(ctx, time.Minute*b.patience, func() error { // until the cluster is there
		_, err := one.Docker(ctx, "network", "create", "-d", "grapevine", "--ipam-driver", "grapevine", grapevine)
		return err
	}); err != nil {
		return err
	}
	step("the networks are there")
	b.paths = []path{{name: underlay, client: one.Exec, server: b.lab.Hosts[1].Exec, addr: b.lab.Hosts[1].Addr()}}
	for _, network := range b.networks() {
		p, err := b.containers(ctx, network)
		if err != nil {
			return err
		}
		b.paths = append(b.paths, p)
		step("containers on " + network + " reach each other")
	}
	for _, p := range b.paths {
		if err := serve(ctx, p); err != nil {
			return err
		}
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
	// It does not wait for longer than 20 s, and goes on joining then.
	_, joinErr := two.Docker(ctx, "swarm", "join", "--token", strings.TrimSpace(token), one.Addr().String()+":2377")
	return lab.Eventually(ctx, time.Minute*b.patience, func() error {
		state, err := two.Docker(ctx, "info", "--format", "{{.Swarm.LocalNodeState}}")
		if err == nil && strings.TrimSpace(state) != "active" {
			err = fmt.Errorf("%s is no node of the swarm, but %s: %w", two.Name, strings.TrimSpace(state), joinErr)
		}
		return err
	})
}

// networks are those that are compared.
func (b *bench) networks() []string {
	if b.overlay {
		return []string{overlay, grapevine}
	}
	return []string{grapevine}
}

// containers starts one container a host on a network and waits until they reach
// each other.
func (b *bench) containers(ctx context.Context, network string) (path, error) {
	var ends [2]lab.Container
	for i, h := range b.lab.Hosts {
		name := network + "-end"
		if err := lab.Eventually(ctx, 2*time.Minute*b.patience, func() error {
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
		progress("      %s runs on %s", name, h.Name)
	}
	addr := ends[1].Addrs[network][0]
	return path{name: network, client: ends[0].Exec, server: ends[1].Exec, addr: addr}, ends[0].Reach(ctx, 30*time.Second*b.patience, addr)
}
