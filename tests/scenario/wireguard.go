package scenario

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/tests/lab"
)

var wireguardCommands = map[string]command{
	"wireguard": wireguard,
	"laptop":    laptop,
	"overhear":  overhear,
	"overheard": overheard,
	"inside":    inside,
	"removed":   removed,
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
// now on, until the host ends; "wire": all that is on the wire, through hosts' ends and boots.
func overhear(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) < 2 {
		return "", usageError("usage: overhear MARKER HOST|wire...")
	}
	hosts, wire, err := s.listeners(args[1:])
	if err != nil {
		return "", err
	}
	if wire != nil {
		if err := wire.Overhear(ctx, args[0]); err != nil {
			return "", err
		}
	}
	for _, h := range hosts {
		if err := lab.Overhear(ctx, h, args[0]); err != nil {
			return "", err
		}
	}
	return "", nil
}

// overheard HOST...: end that, and say in how many frames of how many the marker was. One that
// nobody could read is an error, and so is a wire without a frame: both prove nothing.
func overheard(ctx context.Context, s *state, args []string) (string, error) {
	hosts, wire, err := s.listeners(args)
	if err != nil || len(args) == 0 {
		return "", usageError("usage, after overhear: overheard HOST|wire...")
	}
	var said strings.Builder
	say := func(where string, o lab.Overheard, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprintf(&said, "%s: marker in %d frames of %d\n", where, o.Marked, o.Frames)
		for _, frame := range o.Seen {
			fmt.Fprintf(&said, "  %s\n", frame)
		}
		if o.Frames == 0 || o.Lost > 0 {
			return usageError(fmt.Sprintf("%s: %d frames read, %d lost", where, o.Frames, o.Lost))
		}
		return nil
	}
	for _, h := range hosts {
		o, err := lab.HeardBy(ctx, h)
		if err := say(h.Name, o, err); err != nil {
			return said.String(), err
		}
	}
	if wire != nil {
		o, err := wire.HeardBy(ctx)
		if err := say(theWire, o, err); err != nil {
			return said.String(), err
		}
	}
	return said.String(), nil
}

// theWire stands for it where a script may name hosts.
const theWire = "wire"

func (s *state) listeners(names []string) (hosts []*lab.Host, wire *lab.Wire, err error) {
	if at := slices.Index(names, theWire); at >= 0 && s.lab != nil {
		wire, names = s.lab.Wire, slices.Delete(slices.Clone(names), at, at+1)
	}
	hosts, err = s.hostsOf(names)
	return hosts, wire, err
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
