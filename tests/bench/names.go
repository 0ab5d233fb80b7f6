package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// The figures of names. Of the swarm's overlay they are those of Docker's own resolver.
const (
	replies     = "names: questions answered (1/s)"
	replyMedian = "names: question to answer (ms)"
	replyP99    = "names: the same, p99 (ms)"
	knownMedian = "names: docker run to known on the other host (ms)"
	knownP98    = "names: the same, p98 (ms)"
)

// questions asks, in a container on one host, for a name with one container on
// each host, at a steady rate.
func (b *bench) questions(ctx context.Context) error {
	if b.kind == "uml" {
		return nil // no nf_tables there, so that Docker's resolver stands before ours; and system calls are emulated
	}
	for round := range b.rounds {
		for _, network := range b.networks() {
			c, err := b.lab.Hosts[0].Container(ctx, network+"-end")
			if err != nil {
				return err
			}
			l, err := c.AskAtRate(ctx, c.Name, b.rate, time.Duration(b.seconds)*time.Second)
			if err != nil {
				return err
			}
			b.samples.add(replies, network, float64(l.Answered)/l.Took.Seconds())
			b.samples.add(replyMedian, network, milliseconds(l.Median))
			b.samples.add(replyP99, network, milliseconds(l.P99))
			progress("      round %d: %s %d of %d answered in %.1f s, median %.3f ms, p99 %.3f ms, at most %.1f ms", round+1, network,
				l.Answered, l.Asked, l.Took.Seconds(), milliseconds(l.Median), milliseconds(l.P99), milliseconds(l.Max))
		}
	}
	return nil
}

// knownRuns is how many containers are started for the time until their names are known.
const knownRuns = 50

// known measures the time from the return of `docker run` on one host until the other
// host's containers know the name; 0 if they did before.
func (b *bench) known(ctx context.Context) error {
	if b.kind == "uml" {
		return nil // each kernel has a clock of its own
	}
	took := map[string][]float64{}
	for i := range knownRuns {
		for _, network := range b.networks() {
			ms, err := b.knownOnce(ctx, network, fmt.Sprintf("known%d", i+1))
			if err != nil {
				return err
			}
			took[network] = append(took[network], ms)
		}
	}
	for network, all := range took {
		slices.Sort(all)
		b.samples.add(knownMedian, network, all[len(all)/2])
		b.samples.add(knownP98, network, all[len(all)*98/100-1])
		progress("      %s, %d times: least %.0f, quarter %.0f, median %.0f, three quarters %.0f, most %.0f ms", network, len(all),
			all[0], all[len(all)/4], all[len(all)/2], all[len(all)*3/4], all[len(all)-1])
	}
	return nil
}

func (b *bench) knownOnce(ctx context.Context, network, name string) (ms float64, err error) {
	asks, err := b.lab.Hosts[1].Container(ctx, network+"-end")
	if err != nil {
		return 0, err
	}
	var known time.Time
	var g errgroup.Group
	g.Go(func() (err error) { known, err = asks.AwaitName(ctx, name); return err })
	h := b.lab.Hosts[0]
	_, err = h.Docker(ctx, "run", "-d", "--name", name, "--network", network, lab.Image, "sleep", "1000")
	returned := time.Now()
	if err != nil {
		return 0, err
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	_, err = h.Docker(ctx, "rm", "-f", name)
	return max(0, milliseconds(known.Sub(returned))), err
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
