package scenario

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

var nameCommands = map[string]command{
	"resolve":    resolve,
	"unresolved": unresolved,
	"reverse":    reverse,
	"dig":        dig,
	"race":       race,
}

// resolveWithin is how long after `docker run` a name may take to be known.
const resolveWithin = time.Second

// resolve HOST:CONTAINER NAME TARGET...: within 1 s the container's resolver has
// exactly these addresses for the name.
func resolve(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) < 3 {
		return "", usageError("usage: resolve HOST:CONTAINER NAME TARGET...")
	}
	from, want, err := s.ends(ctx, append(args[:1:1], args[2:]...))
	if err != nil {
		return "", err
	}
	slices.SortFunc(want, netip.Addr.Compare)
	return "", s.lookUp(ctx, from, args[1], want)
}

// unresolved HOST:CONTAINER NAME: within 1 s it has none.
func unresolved(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) != 2 {
		return "", usageError("usage: unresolved HOST:CONTAINER NAME")
	}
	from, err := s.container(ctx, args[0])
	if err != nil {
		return "", err
	}
	return "", s.lookUp(ctx, from, args[1], nil)
}

func (s *state) lookUp(ctx context.Context, from lab.Container, name string, want []netip.Addr) error {
	return lab.Eventually(ctx, resolveWithin*s.patience(), func() error {
		got, err := from.Lookup(ctx, name)
		if err != nil {
			return err
		}
		slices.SortFunc(got, netip.Addr.Compare)
		if !slices.Equal(got, want) {
			return fmt.Errorf("in %s on %s the name %s has the addresses %v, want %v", from.Name, from.Host.Name, name, got, want)
		}
		return nil
	})
}

// reverse HOST:CONTAINER TARGET [NAME]: within 1 s the target's address has this name,
// or none.
func reverse(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) != 2 && len(args) != 3 {
		return "", usageError("usage: reverse HOST:CONTAINER TARGET [NAME]")
	}
	from, addrs, err := s.ends(ctx, args[:2])
	if err != nil {
		return "", err
	}
	want := strings.Join(args[2:], "")
	return "", lab.Eventually(ctx, resolveWithin*s.patience(), func() error {
		got, err := from.LookupAddr(ctx, addrs[0])
		if err == nil && strings.Join(got, " ") != want {
			err = fmt.Errorf("in %s on %s the address %s has the names %v, want %q", from.Name, from.Host.Name, addrs[0], got, want)
		}
		return err
	})
}

// dig HOST:CONTAINER [@SERVER] [+tcp] [+bufsize=N] TYPE NAME: the answer, as dig(1) has it.
func dig(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) < 3 {
		return "", usageError("usage: dig HOST:CONTAINER [@SERVER] [+tcp] [+bufsize=N] TYPE NAME")
	}
	from, err := s.container(ctx, args[0])
	if err != nil {
		return "", err
	}
	return from.Dig(ctx, args[1:]...)
}

// race HOST:CONTAINER FIRST COUNT: it asks for names of so many addresses and connects to each as soon as it is told.
func race(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) != 3 {
		return "", usageError("usage: race HOST:CONTAINER FIRST COUNT")
	}
	from, err := s.container(ctx, args[0])
	if err != nil {
		return "", err
	}
	return from.Race(ctx, args[1], args[2])
}
