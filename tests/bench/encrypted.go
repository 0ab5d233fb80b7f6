package main

import (
	"context"
)

// The paths of what is encrypted.
const (
	wireguard = "WireGuard, host to host"
	encrypted = "encrypted"
)

// encryption measures TCP between containers of an encrypted network, against WireGuard between their hosts, which
// knows nothing of grapevine. Both are the kernel's where there is one, and else wireguard-go.
func (b *bench) encryption(ctx context.Context) error {
	if b.kind == "uml" && b.modules == "" {
		progress("      not measured: -modules \"$(scripts/kernel-modules)\" gives these kernels WireGuard")
		return nil
	}
	one, two := b.lab.Hosts[0], b.lab.Hosts[1]
	for _, h := range b.lab.Hosts {
		if err := h.StartWireGuard(ctx, b.lab.Hosts...); err != nil {
			return err
		}
	}
	if _, err := one.Docker(ctx, "network", "create", "-d", "grapevine", "--ipam-driver", "grapevine", "-o", "encrypted", encrypted); err != nil {
		return err
	}
	inside, err := b.containers(ctx, encrypted)
	if err != nil {
		return err
	}
	if err := serve(ctx, inside); err != nil {
		return err
	}
	plain := path{name: wireguard, client: one.Exec, server: two.Exec, addr: two.WireGuardAddr()}
	of := *b
	of.paths = []path{plain, inside}
	for round := range b.rounds {
		err := of.inTurns(ctx, round, tcp, func(ctx context.Context, p path) (float64, error) {
			r, err := b.iperf(ctx, p)
			return r.Received.Rate / 1e9, err
		})
		if err != nil {
			return err
		}
		progress("      round %d: %.3f and %.3f Gbit/s", round+1, last(b.samples[key{tcp, wireguard}]), last(b.samples[key{tcp, encrypted}]))
	}
	progress("      %s: %.3f Gbit/s; encrypted network: %.3f; ratio %s", wireguard,
		b.samples.median(tcp, wireguard), b.samples.median(tcp, encrypted), b.samples.compared(tcp, encrypted, wireguard))
	return nil
}

func last(v []float64) float64 { return v[len(v)-1] }
