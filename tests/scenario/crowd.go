package scenario

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// atOnce is how many `docker run` one host does at a time.
const atOnce = 8

// crowd N NETWORK HOST...: start N containers in parallel, spread over the hosts, with
// the alias crowd;
// their addresses differ, and one of every host reaches all of them.
func crowd(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) < 3 {
		return "", usageError("usage: crowd N NETWORK HOST...")
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return "", usageError("crowd: " + err.Error())
	}
	begin := time.Now()
	crowded, err := s.runCrowd(ctx, n, args[1], args[2:])
	if err != nil {
		return "", err
	}
	said := fmt.Sprintf("%d containers in %.1f s\n", n, time.Since(begin).Seconds())
	owner, all := map[netip.Addr]string{}, []netip.Addr{}
	for _, c := range crowded {
		for _, addr := range c.AllAddrs() {
			if other, taken := owner[addr]; taken {
				return said, fmt.Errorf("%s on %s has the address %s of %s", c.Name, c.Host.Name, addr, other)
			}
			owner[addr] = c.Name
			all = append(all, addr)
		}
	}
	if len(all) < n {
		return said, fmt.Errorf("%d containers have only %d addresses", n, len(all))
	}
	for _, c := range crowded[:len(args[2:])] { // the first on every host
		if err := c.Reach(ctx, 2*reachWithin*s.patience(), all...); err != nil {
			return said, err
		}
	}
	return said, nil
}

// runCrowd runs containers crowd1, crowd2, ... in turn on the hosts.
func (s *state) runCrowd(ctx context.Context, n int, network string, on []string) ([]lab.Container, error) {
	crowded := make([]lab.Container, n)
	limits := map[string]chan struct{}{}
	for _, name := range on {
		limits[name] = make(chan struct{}, atOnce)
	}
	var g errgroup.Group
	for i := range n {
		h, err := s.host(on[i%len(on)])
		if err != nil {
			return nil, err
		}
		g.Go(func() error {
			limits[h.Name] <- struct{}{}
			defer func() { <-limits[h.Name] }()
			name := fmt.Sprintf("crowd%d", i+1)
			if _, err := h.Docker(ctx, "run", "-d", "--name", name, "--network", network, "--network-alias", "crowd", lab.Image); err != nil {
				return err
			}
			var err error
			crowded[i], err = h.Container(ctx, name)
			return err
		})
	}
	return crowded, g.Wait()
}

// together runs commands at the same time and joins what they say.
func (s *state) together(ctx context.Context, lines [][]string) (string, error) {
	var mu sync.Mutex
	var said string
	var g errgroup.Group
	for _, line := range lines {
		c, args, err := parse(line)
		if err != nil {
			return "", err
		}
		g.Go(func() error {
			out, err := c(ctx, s, args)
			mu.Lock()
			defer mu.Unlock()
			said += out
			return err
		})
	}
	return said, g.Wait()
}
