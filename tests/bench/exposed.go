package main

import (
	"context"
	"fmt"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// more is a bench, for what few ask for.
type more struct{ b *bench }

// The ways from outside to one replica.
const (
	publishedPort = "published, its own host"
	exposedHere   = "exposed, its own host"
	exposedThere  = "exposed, another host"
)

// exposed measures a port of every host, by the replica's own host and by another one, against one that its host publishes.
func (m more) exposed(ctx context.Context) error {
	b := m.b
	if b.kind == "uml" {
		return nil // no nf_tables
	}
	one, two, outside := b.lab.Hosts[0], b.lab.Hosts[1], b.lab.Outside.Program
	if _, err := two.Docker(ctx, "run", "-d", "--name", "both", "--network", grapevine, "-p", "5401:5301", "-p", "5402:5302", lab.Image, "sleep", "100000"); err != nil {
		return err
	}
	c, err := two.Container(ctx, "both")
	if err != nil {
		return err
	}
	if err := serve(ctx, path{name: "both", server: c.Exec}); err != nil {
		return err
	}
	if err := lab.ServeRates(ctx, two, c.Exec, "[::]:5302"); err != nil {
		return err
	}
	for _, argv := range [][]string{
		{"service", "create", "both", "--network", grapevine, "--port", "5301", "--port", "5302"},
		{"service", "expose", "both", "5501:5301", "5502:5302"},
	} {
		if _, err := one.Grapevine(ctx, argv...); err != nil {
			return err
		}
	}
	of := *b
	of.paths = []path{
		{publishedPort, outside, c.Exec, two.Addr(), 100},
		{exposedHere, outside, c.Exec, two.Addr(), 200},
		{exposedThere, outside, c.Exec, one.Addr(), 200},
	}
	for _, p := range of.paths {
		if err := lab.Eventually(ctx, time.Minute*b.patience, func() error {
			_, err := lab.Rate(ctx, p.client, fmt.Sprint(p.addr, ":", 5302+p.ports), true, 100*time.Millisecond)
			return err
		}); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	for round := range b.rounds {
		for turn := range turns {
			if err := of.inTurns(ctx, round+turn, stream, b.throughput); err != nil {
				return err
			}
		}
	}
	for _, f := range []string{stream} {
		for _, p := range of.paths {
			progress("      %s, %s: %s", f, p.name, cell(b.samples.median(f, p.name), 2))
		}
		for _, p := range of.paths[1:] {
			progress("      %s, %s / %s: %s", f, p.name, publishedPort, b.samples.compared(f, p.name, publishedPort))
		}
	}
	return m.remove(ctx, two, "both")
}

func (m more) remove(ctx context.Context, h *lab.Host, name string) error {
	if _, err := h.Grapevine(ctx, "service", "remove", name); err != nil {
		return err
	}
	if _, err := h.Docker(ctx, "rm", "-f", name); err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}
