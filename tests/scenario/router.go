package scenario

import (
	"context"
	"os"
	"path/filepath"
)

var routerCommands = map[string]command{"router": onRouter, "nic": addNIC}

// onRouter runs something on the hosts' router: router bird FILE is Debian's bird there, configured by that file of the
// script; router birdc asks it. router frr FILE is Debian's FRR, which vtysh asks.
func onRouter(ctx context.Context, s *state, args []string) (string, error) {
	if s.lab == nil || len(args) == 0 {
		return "", usageError("usage, after hosts: router bird FILE or router PROGRAM ARGUMENTS...")
	}
	start := map[string]func(context.Context, string) error{"bird": s.lab.StartBird, "frr": s.lab.StartFRR}[args[0]]
	if start == nil {
		return s.lab.OnRouter(ctx, args...)
	}
	if len(args) != 2 {
		return "", usageError("usage: router " + args[0] + " FILE")
	}
	config, err := os.ReadFile(filepath.Join(s.dir, args[1]))
	if err != nil {
		return "", usageError(err.Error())
	}
	return "", start(ctx, string(config))
}

// addNIC is nic HOST NIC ADDRESS/BITS...: the host has another interface, on a LAN that the router's bridge of that name is.
func addNIC(ctx context.Context, s *state, args []string) (string, error) {
	if s.lab == nil || len(args) < 2 {
		return "", usageError("usage, after hosts: nic HOST NIC [ADDRESS/BITS...]")
	}
	h, err := s.host(args[0])
	if err != nil {
		return "", err
	}
	return "", s.lab.Wire.AddNIC(ctx, h, args[1], args[2:]...)
}
