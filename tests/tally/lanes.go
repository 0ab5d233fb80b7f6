package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// beside stands between the tiers of one lane and those of the next.
const beside = "/"

// lanesOf are the tiers to run beside each other, each lane one tier after the other.
func lanesOf(names []string) (lanes [][]tier, err error) {
	lane := []tier{}
	for _, name := range names {
		if name == beside {
			lanes, lane = append(lanes, lane), nil
			continue
		}
		t, found := find(name)
		if !found {
			return nil, fmt.Errorf("unknown tier %q: unit, policy, fuzz, race, lab, chaos, plugin, engines, page, uml, qemu, all-chaos, all-uml or all-engines", name)
		}
		lane = append(lane, t)
	}
	return append(lanes, lane), nil
}

// runLanes runs all lanes to their ends and returns what they counted, and a line for each tier
// with its time beside its budget and the processors' time, in the order in which they are named.
func runLanes(ctx context.Context, out io.Writer, lanes [][]tier) (total counts, times string, err error) {
	counted, took := make([]counts, len(lanes)), make([]strings.Builder, len(lanes))
	tasks, ctx := errgroup.WithContext(ctx)
	for i, lane := range lanes {
		tasks.Go(func() error {
			for _, t := range lane {
				fmt.Fprintf(out, "=== %s: %s (budget %s)\n", t.name, t.what, t.budget)
				begin := time.Now()
				c, err := t.run(ctx, out)
				if err != nil {
					return fmt.Errorf("tier %s: %w", t.name, err)
				}
				counted[i].add(c)
				fmt.Fprintf(&took[i], "%-7s %s of %s, processors %s, %s\n", t.name, time.Since(begin).Round(time.Second), t.budget, c.cpu.Round(time.Second), c)
			}
			return nil
		})
	}
	err = tasks.Wait()
	for i := range lanes {
		total.add(counted[i])
		times += took[i].String()
	}
	return total, times, err
}

// shared is a writer for several tiers. What one of them writes at once stays together.
type shared struct {
	mu sync.Mutex
	to io.Writer
}

func (s *shared) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to.Write(b)
}
