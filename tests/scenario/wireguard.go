package scenario

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/grapevine-net/grapevine/tests/lab"
)

var wireguardCommands = map[string]command{
	"wireguard": wireguard,
	"laptop":    laptop,
	"overhear":  overhear,
	"overheard": overheard,
	"inside":    inside,
}

func (s *state) hostsOf(names []string) (all []*lab.Host, err error) {
	for _, name := range names {
		h, err := s.host(name)
		if err != nil {
			return nil, err
		}
		all = append(all, h)
	}
	return all, nil
}

// wireguard HOST...: the hosts have wg0, with an address of 10.99.0.0/24, over which each reaches
// each other one.
func wireguard(ctx context.Context, s *state, args []string) (string, error) {
	all, err := s.hostsOf(args)
	if err != nil || len(all) < 2 {
		return "", usageError("usage: wireguard HOST HOST...")
	}
	for _, h := range all {
		if err := h.StartWireGuard(ctx, all...); err != nil {
			return "", err
		}
	}
	return "", nil
}

// laptop HOST FILE: the host, on which no agent runs, has wg0 as the file says, which `grapevine client add` has printed.
func laptop(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) != 2 {
		return "", usageError("usage: laptop HOST FILE")
	}
	h, err := s.host(args[0])
	if err != nil {
		return "", err
	}
	file, err := os.ReadFile(filepath.Join(s.dir, args[1]))
	if err != nil {
		return "", usageError(err.Error())
	}
	return "", lab.StartLaptop(ctx, h, string(file))
}

// overhear MARKER HOST...: somebody reads all that these hosts send and receive on the wire from
// now on.
func overhear(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) < 2 {
		return "", usageError("usage: overhear MARKER HOST...")
	}
	all, err := s.hostsOf(args[1:])
	if err != nil {
		return "", err
	}
	for _, h := range all {
		if err := lab.Overhear(ctx, h, args[0]); err != nil {
			return "", err
		}
	}
	return "", nil
}

// overheard HOST...: end that, and say in how many frames of how many the marker was. One that
// nobody could read is an error, and so is a wire without a frame: both prove nothing.
func overheard(ctx context.Context, s *state, args []string) (string, error) {
	all, err := s.hostsOf(args)
	if err != nil || len(all) == 0 {
		return "", usageError("usage, after overhear: overheard HOST...")
	}
	var said strings.Builder
	for _, h := range all {
		o, err := lab.HeardBy(ctx, h)
		if err != nil {
			return said.String(), err
		}
		fmt.Fprintf(&said, "%s: marker in %d frames of %d\n", h.Name, o.Marked, o.Frames)
		if o.Frames == 0 || o.Lost > 0 {
			return said.String(), usageError(fmt.Sprintf("%s: %d frames read, %d lost", h.Name, o.Frames, o.Lost))
		}
	}
	return said.String(), nil
}

// inside VAR HOST: the variable is the address that the host has inside grapevine's own WireGuard.
func inside(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) != 2 {
		return "", usageError("usage: inside VAR HOST")
	}
	h, err := s.host(args[1])
	if err != nil {
		return "", err
	}
	out, err := h.Exec(ctx, "ip", "-6", "-o", "addr", "show", "dev", "gvwg", "scope", "global")
	if err != nil {
		return "", err
	}
	for _, word := range strings.Fields(out) {
		if addr, isPrefix := strings.CutSuffix(word, "/128"); isPrefix {
			s.setenv(args[0], addr)
			return "", nil
		}
	}
	return "", fmt.Errorf("%s has no address inside WireGuard: %s", h.Name, out)
}
