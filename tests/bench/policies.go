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

// What an open connection has, with policies, without, and on Docker's overlay.
const (
	open     = "TCP, 1 stream, open (Gbit/s)"
	answered = "round trips a second, one connection of TCP"
)

// The turns of it.
const (
	without = "without policies"
	with    = "with policies"
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
	var ends []path
	for _, at := range [][2]string{{"near", oneHost}, {"far", twoHosts}} {
		to := containers[at[0]]
		p := path{name: at[1], client: caller.Exec, server: to.Exec, addr: to.Addrs["ruled"][0]}
		if err := serve(ctx, p); err != nil {
			return err
		}
		ends = append(ends, p)
	}
	against, err := m.onOverlay(ctx)
	if err != nil {
		return err
	}
	for round := range b.rounds {
		for turn, rules := range []string{without, with} {
			if round+turn > 0 {
				if err := m.rule(ctx, rules == with, caller, containers["near"], containers["far"]); err != nil {
					return err
				}
			}
			for _, w := range ways {
				rate, err := lab.Rate(ctx, w.client, w.addr, true, time.Duration(b.seconds)*time.Second)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", w.name, rules, err)
				}
				b.samples.add(connects, w.name+", "+rules, rate)
			}
			if err := m.opened(ctx, rules, ends); err != nil {
				return err
			}
		}
		if err := m.opened(ctx, overlay, against); err != nil {
			return err
		}
	}
	for _, w := range ways {
		ruled, free := w.name+", "+with, w.name+", "+without
		progress("      %s %s: %.0f without policies, %.0f with; with / without %s", connects, w.name, b.samples.median(connects, free), b.samples.median(connects, ruled), b.samples.compared(connects, ruled, free))
	}
	for _, what := range []string{open, answered} {
		for _, p := range ends {
			of := func(turn string) string { return p.name + ", " + turn }
			progress("      %s, %s: %.2f without policies, %.2f with; with / without %s", what, p.name, b.samples.median(what, of(without)), b.samples.median(what, of(with)), b.samples.compared(what, of(with), of(without)))
			if b.overlay {
				progress("      %s, %s: %.2f on Docker's overlay; with policies / overlay %s", what, p.name, b.samples.median(what, of(overlay)), b.samples.compared(what, of(with), of(overlay)))
			}
		}
	}
	return m.ruledRun(ctx)
}

// onOverlay are the paths of Docker's overlay, on one host and between two; none, if it is not compared.
func (m more) onOverlay(ctx context.Context) (ends []path, err error) {
	b := m.b
	if !b.overlay {
		return nil, nil
	}
	one := b.lab.Hosts[0]
	if _, err := one.Docker(ctx, "run", "-d", "--name", "overlay-beside", "--network", overlay, lab.Image, "sleep", "100000"); err != nil {
		return nil, err
	}
	beside, err := one.Container(ctx, "overlay-beside")
	if err != nil {
		return nil, err
	}
	for _, p := range b.paths {
		if p.name == overlay {
			near := path{name: oneHost, client: p.client, server: beside.Exec, addr: beside.Addrs[overlay][0]}
			if err := serve(ctx, near); err != nil {
				return nil, err
			}
			p.name = twoHosts
			ends = append(ends, near, p)
		}
	}
	for i, p := range ends {
		if err := lab.ServeRates(ctx, b.lab.Hosts[i], p.server, "0.0.0.0:5302"); err != nil {
			return nil, err
		}
		if err := lab.Eventually(ctx, time.Minute*b.patience, func() error {
			_, err := lab.Rate(ctx, p.client, p.addr.String()+":5302", false, 100*time.Millisecond)
			return err
		}); err != nil {
			return nil, fmt.Errorf("on Docker's overlay, %s: %w", p.name, err)
		}
	}
	return ends, nil
}

// opened measures what open connections have.
func (m more) opened(ctx context.Context, turn string, ends []path) error {
	for _, p := range ends {
		stream, err := m.b.iperf(ctx, p)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", p.name, turn, err)
		}
		answers, err := lab.Rate(ctx, p.client, p.addr.String()+":5302", false, time.Duration(m.b.seconds)*time.Second)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", p.name, turn, err)
		}
		m.b.samples.add(open, p.name+", "+turn, stream.Received.Rate/1e9)
		m.b.samples.add(answered, p.name+", "+turn, answers)
	}
	return nil
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
