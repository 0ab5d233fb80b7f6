package main

import (
	"context"
	"fmt"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// everybody lets all containers of the network call each other at the ports of iperf3 and of rates, and what is outside, and be called from there at
// those ports, and nothing else, by rules at both ends.
const everybody = `printf 'apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: everybody, namespace: ruled}
spec:
  podSelector: {}
  policyTypes: [Ingress, Egress]
  ingress: [{from: [{podSelector: {}}, {ipBlock: {cidr: 0.0.0.0/0}}], ports: [{protocol: TCP, port: 5301}, {protocol: TCP, port: 5302}]}]
  egress: [{to: [{podSelector: {}}, {ipBlock: {cidr: 0.0.0.0/0}}], ports: [{protocol: TCP, port: 5301}, {protocol: TCP, port: 5302}]}]
' | grapevine policy apply -f -`

// What an open connection between two hosts has, with policies and without.
const (
	open     = "TCP, 1 stream, open, between two hosts (Gbit/s)"
	answered = "requests a second, one connection, between two hosts"
)

// way is one by which connections are measured.
type way struct {
	name   string
	client func(context.Context, ...string) (string, error)
	addr   string
}

// policies measures connections a second between containers of one host, and of two, to the outside and by a published port, with
// policies at both ends and without, in turns; and how long docker run takes with them, against Docker's overlay.
func (m more) policies(ctx context.Context) error {
	b := m.b
	one, two, outside := b.lab.Hosts[0], b.lab.Hosts[1], b.lab.Outside.Program
	if _, err := one.Docker(ctx, "network", "create", "-d", "grapevine", "--ipam-driver", "grapevine", "ruled"); err != nil {
		return err
	}
	if err := lab.Eventually(ctx, time.Minute*b.patience, func() error {
		_, err := two.Docker(ctx, "network", "inspect", "ruled")
		return err
	}); err != nil {
		return err
	}
	containers := map[string]lab.Container{}
	for name, h := range map[string]*lab.Host{"caller": one, "near": one, "far": two} {
		argv := []string{"run", "-d", "--name", name, "--network", "ruled"}
		if name == "near" {
			argv = append(argv, "-p", "5702:5302")
		}
		if _, err := h.Docker(ctx, append(argv, lab.Image, "sleep", "100000")...); err != nil {
			return err
		}
		c, err := h.Container(ctx, name)
		if err != nil {
			return err
		}
		containers[name] = c
		if name != "caller" {
			if err := lab.ServeRates(ctx, h, c.Exec, "0.0.0.0:5302"); err != nil {
				return err
			}
		}
	}
	if err := lab.ServeRates(ctx, one, outside, "0.0.0.0:5302"); err != nil {
		return err
	}
	caller := containers["caller"]
	ways := []way{
		{"on one host", caller.Exec, containers["near"].Addrs["ruled"][0].String() + ":5302"},
		{"between two hosts", caller.Exec, containers["far"].Addrs["ruled"][0].String() + ":5302"},
		{"to the outside", caller.Exec, lab.OutsideAddr + ":5302"},
		{"by a published port", outside, one.Addr().String() + ":5702"},
	}
	for _, w := range ways {
		if err := lab.Eventually(ctx, time.Minute*b.patience, func() error {
			_, err := lab.Rate(ctx, w.client, w.addr, true, 100*time.Millisecond)
			return err
		}); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	far := path{name: "between two hosts", client: caller.Exec, server: containers["far"].Exec, addr: containers["far"].Addrs["ruled"][0]}
	if err := serve(ctx, far); err != nil {
		return err
	}
	for round := range b.rounds {
		for turn, with := range []string{"without policies", "with policies"} {
			if round+turn > 0 {
				if err := m.rule(ctx, with == "with policies", caller, containers["near"], containers["far"]); err != nil {
					return err
				}
			}
			for _, w := range ways {
				rate, err := lab.Rate(ctx, w.client, w.addr, true, time.Duration(b.seconds)*time.Second)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", w.name, with, err)
				}
				b.samples.add(connects, w.name+", "+with, rate)
			}
			stream, err := b.iperf(ctx, far)
			if err != nil {
				return err
			}
			answers, err := lab.Rate(ctx, caller.Exec, ways[1].addr, false, time.Duration(b.seconds)*time.Second)
			if err != nil {
				return err
			}
			b.samples.add(open, with, stream.Received.Rate/1e9)
			b.samples.add(answered, with, answers)
		}
	}
	for _, w := range ways {
		with, without := w.name+", with policies", w.name+", without policies"
		progress("      %s %s: %.0f without policies, %.0f with; with / without %s", connects, w.name, b.samples.median(connects, without), b.samples.median(connects, with), b.samples.compared(connects, with, without))
	}
	for _, what := range []string{open, answered} {
		progress("      %s: %.2f without policies, %.2f with; with / without %s", what, b.samples.median(what, "without policies"), b.samples.median(what, "with policies"), b.samples.compared(what, "with policies", "without policies"))
	}
	return m.ruledRun(ctx)
}

// ruledRun times docker run on the network, which has policies now, and on Docker's overlay, in turns.
func (m more) ruledRun(ctx context.Context) error {
	b := m.b
	networks := []string{"ruled"}
	if b.overlay {
		networks = append(networks, overlay)
	}
	for turn := range b.runs {
		for i := range networks {
			network := networks[(turn+i)%len(networks)]
			begin := time.Now()
			if _, err := b.lab.Hosts[0].Docker(ctx, "run", "-d", "--name", "timed", "--network", network, lab.Image, "sleep", "1000"); err != nil {
				return err
			}
			b.samples.add("docker run, with policies", network, time.Since(begin).Seconds())
			if _, err := b.lab.Hosts[0].Docker(ctx, "rm", "-f", "timed"); err != nil {
				return err
			}
		}
	}
	progress("      docker run -d on a network with policies: %.3f s", b.samples.median("docker run, with policies", "ruled"))
	if b.overlay {
		progress("      docker run -d on Docker's overlay: %.3f s; with policies / overlay %s", b.samples.median("docker run, with policies", overlay), b.samples.compared("docker run, with policies", "ruled", overlay))
	}
	return nil
}

// rule has policies be enforced, or no more: then a ping gets through.
func (m more) rule(ctx context.Context, is bool, caller lab.Container, to ...lab.Container) error {
	act := everybody
	if !is {
		act = "grapevine policy delete netpol ruled/everybody"
	}
	if _, err := m.b.lab.Hosts[0].Exec(ctx, "sh", "-c", act); err != nil {
		return err
	}
	for _, c := range to {
		if !is {
			if err := caller.Reach(ctx, time.Minute*m.b.patience, c.Addrs["ruled"]...); err != nil {
				return err
			}
			continue
		}
		if err := lab.Eventually(ctx, time.Minute*m.b.patience, func() error {
			return caller.Silent(ctx, time.Second, c.Addrs["ruled"]...)
		}); err != nil {
			return err
		}
	}
	return nil
}
