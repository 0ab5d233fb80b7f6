package scenario

import (
	"context"
	"os"
	"path/filepath"
)

var routerCommands = map[string]command{"router": onRouter, "nic": addNIC}

// onRouter runs something on the hosts' router: router bird FILE is Debian's bird there, configured by that file of the
// script; router birdc asks it.
func onRouter(ctx context.Context, s *state, args []string) (string, error) {
	if s.lab == nil || len(args) == 0 {
		return "", usageError("usage, after hosts: router bird FILE or router PROGRAM ARGUMENTS...")
	}
	if args[0] != "bird" {
		return s.lab.OnRouter(ctx, args...)
	}
	if len(args) != 2 {
		return "", usageError("usage: router bird FILE")
	}
	config, err := os.ReadFile(filepath.Join(s.dir, args[1]))
	if err != nil {
		return "", usageError(err.Error())
	}
	return "", s.lab.StartBird(ctx, string(config))
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
