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

// tiersOf are the tiers of these names.
func tiersOf(names []string) (list []tier, err error) {
	for _, name := range names {
		t, found := find(name)
		if !found {
			return nil, fmt.Errorf("unknown tier %q: %s", name, tierNames())
		}
		list = append(list, t)
	}
	return list, nil
}

// runBeside runs tiers, so many beside each other: in their order, each as soon as one has ended. It returns what they
// counted, and a line for each with its time beside its budget and the processors' time, in the same order.
func runBeside(ctx context.Context, out io.Writer, list []tier, beside int) (total counts, times string, err error) {
	counted, lines := make([]counts, len(list)), make([]string, len(list))
	began := time.Now()
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.SetLimit(beside)
	for i, t := range list {
		tasks.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			begin := time.Now()
			fmt.Fprintf(out, "=== %s, at %s: %s (budget %s)\n", t.name, begin.Sub(began).Round(time.Second), t.what, t.budget)
			c, err := t.run(ctx, out)
			if err != nil {
				return fmt.Errorf("tier %s: %w", t.name, err)
			}
			counted[i] = c
			lines[i] = fmt.Sprintf("%-7s %s of %s, from %s on, processors %s, %s\n", t.name, time.Since(begin).Round(time.Second), t.budget,
				begin.Sub(began).Round(time.Second), c.cpu.Round(time.Second), c)
			return nil
		})
	}
	err = tasks.Wait()
	for _, c := range counted {
		total.add(c)
	}
	return total, strings.Join(lines, ""), err
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
