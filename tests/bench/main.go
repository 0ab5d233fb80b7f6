// Command bench measures grapevine between two Docker hosts of the lab, against
// Docker's swarm overlay on the same two hosts and against the wire itself, and
// prints ratios. The paths take turns within each round, so that a machine whose
// speed drifts does not favour one of them; the figures are medians.
//
//	bench [-kind namespace|uml|qemu] [-rounds 5] [-seconds 3] [-only names]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// options are the command's flags.
type options struct {
	kind    string
	tree    string
	kernel  string
	modules string
	limit   time.Duration
	overlay bool
	rounds  int
	seconds int
	runs    int
	rest    time.Duration
	rate    int
	only    string
	fast    string
	limits  string
	out     string
}

func main() {
	lab.Init()
	var o options
	flag.StringVar(&o.kind, "kind", "namespace", "hosts: namespace (userspace datapath), uml (kernel datapath), or qemu (namespaces in an ordinary kernel, kernel datapath)")
	flag.StringVar(&o.tree, "tree", "", "a debootstrapped Debian whose programs the hosts use, for a newer Open vSwitch")
	flag.StringVar(&o.kernel, "kernel", "", "of kind qemu: the kernel, from scripts/kernel")
	flag.StringVar(&o.modules, "modules", "", "of kind uml: modules for the kernels, from scripts/kernel-modules, for encryption and services")
	flag.DurationVar(&o.limit, "limit", time.Hour, "of kind qemu: how long all of it may take")
	flag.BoolVar(&o.overlay, "overlay", true, "compare with Docker's overlay, too")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds; each figure is the median of as many")
	flag.IntVar(&o.seconds, "seconds", 3, "seconds of one measurement of names and of the fast path")
	flag.IntVar(&o.runs, "runs", 10, "containers started for the time of docker run")
	flag.DurationVar(&o.rest, "rest", 20*time.Second, "how long the idle agent is watched")
	flag.IntVar(&o.rate, "rate", 5000, "questions a second for names")
	flag.StringVar(&o.only, "only", "", "only measurements with one of these words in their name, separated by commas; without it the usual ones")
	flag.StringVar(&o.fast, "fastpath", "auto", "the fast path in the column grapevine: auto, on or off")
	flag.StringVar(&o.limits, "limits", "1,10,100,1000", "Mbit/s that limits are")
	flag.StringVar(&o.out, "out", "", "put the table of the fast path into this Markdown file, between its marks, and a plot beside it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

func run(ctx context.Context, o options) (err error) {
	if o.kind == qemu && !lab.InGuest() {
		return inGuest(ctx, o)
	}
	b, err := newBench(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := b.lab.Close(); err == nil {
			err = closeErr
		}
	}()
	const usual = 10 // so many of them are measured; the others are if -only names them
	steps := []struct {
		what string
		do   func(context.Context) error
	}{
		{"TCP throughput and round trips", b.traffic},
		{"names: questions and answers", b.questions},
		{"names: from the start of a container to being known", b.known},
		{"docker run", b.dockerRun},
		{"the agent's own calls", b.calls},
		{"the agent at rest", b.atRest},
		{"the fast path: a table of figures, on and off", b.table},
		{"the outside: what goes by the gateway, on and off", b.gateway},
		{"encryption: TCP in an encrypted network, against WireGuard from host to host", b.encryption},
		{"services: connections and TCP by a service's address, against Swarm's", b.services},
		{"exposed: a port of every host, against a published one", more{b}.exposed},
		{"limits: what passes of what may", more{b}.limits},
		{"a thousand service addresses: what the agent takes", more{b}.thousand},
		{"policies: connections with them, against those without and Docker's overlay", more{b}.policies},
		{"multicast: to a group, against the member's own address", more{b}.multicast},
		{"beside: a network in the clear, with an encrypted one and without", b.beside},
		{"counted: who talks to whom, against not", more{b}.counted},
	}
	for i, step := range steps {
		if o.only == "" && i >= usual {
			continue
		}
		if !slices.ContainsFunc(strings.Split(o.only, ","), func(word string) bool { return strings.Contains(step.what, word) }) {
			continue
		}
		progress("[%d/%d] %s", i+1, len(steps), step.what)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("measure %s: %w", step.what, err)
		}
	}
	fmt.Print(b.report(), b.reportTable(), b.reportServices())
	if o.out != "" && b.tables != nil {
		return b.write(o.out)
	}
	return nil
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
