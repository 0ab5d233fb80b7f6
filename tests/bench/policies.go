package main

import (
	"context"
	"net/netip"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// everybody lets all containers of the network call each other at the port of rates, and nothing else, by rules at both ends.
const everybody = `printf 'apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: everybody, namespace: ruled}
spec:
  podSelector: {}
  policyTypes: [Ingress, Egress]
  ingress: [{from: [{podSelector: {}}], ports: [{protocol: TCP, port: 5302}]}]
  egress: [{to: [{podSelector: {}}], ports: [{protocol: TCP, port: 5302}]}]
' | grapevine policy apply -f -`

// policies measures connections a second between containers of one host, and of two, with policies at both ends and without, in turns.
func (m more) policies(ctx context.Context) error {
	b := m.b
	one, two := b.lab.Hosts[0], b.lab.Hosts[1]
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
		if _, err := h.Docker(ctx, "run", "-d", "--name", name, "--network", "ruled", lab.Image, "sleep", "100000"); err != nil {
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
	places := []string{"near", "far"}
	to := []netip.Addr{containers["near"].Addrs["ruled"][0], containers["far"].Addrs["ruled"][0]}
	if err := containers["caller"].Reach(ctx, time.Minute, to...); err != nil {
		return err
	}
	for round := range b.rounds {
		for turn, with := range []string{"without policies", "with policies"} {
			if round+turn > 0 {
				if err := m.rule(ctx, with == "with policies", containers["caller"], to); err != nil {
					return err
				}
			}
			for _, name := range places {
				rate, err := lab.Rate(ctx, containers["caller"].Exec, containers[name].Addrs["ruled"][0].String()+":5302", true, time.Duration(b.seconds)*time.Second)
				if err != nil {
					return err
				}
				b.samples.add(connects, name+", "+with, rate)
			}
		}
	}
	for name, where := range map[string]string{"near": "on one host", "far": "between two hosts"} {
		with, without := name+", with policies", name+", without policies"
		progress("      %s %s: %.0f without policies, %.0f with; with / without %s", connects, where, b.samples.median(connects, without), b.samples.median(connects, with), b.samples.compared(connects, with, without))
	}
	return nil
}

// rule has policies be enforced, or no more: then a ping gets through.
func (m more) rule(ctx context.Context, is bool, caller lab.Container, to []netip.Addr) error {
	act := everybody
	if !is {
		act = "grapevine policy delete netpol ruled/everybody"
	}
	if _, err := m.b.lab.Hosts[0].Exec(ctx, "sh", "-c", act); err != nil {
		return err
	}
	if !is {
		return caller.Reach(ctx, time.Minute*m.b.patience, to...)
	}
	return lab.Eventually(ctx, time.Minute*m.b.patience, func() error {
		return caller.Silent(ctx, time.Second, to...)
	})
}
