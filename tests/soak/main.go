// Command soak has networks, containers, published ports, aliases and hosts come and go on
// Docker hosts by the thousand, and compares what there was before with what there is after
// it: in the kernel, in Open vSwitch, in the files, in the ring and in the cluster's records.
//
//	soak -for 10m
//
// docs/measurements/soak.md says what is compared, and has the record of past runs.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

func main() {
	lab.Init()
	s := settings{out: os.Stdout}
	flag.IntVar(&s.hosts, "hosts", 3, "hosts that stay; one more comes and goes")
	flag.DurationVar(&s.during, "for", 0, "how long")
	flag.IntVar(&s.rounds, "rounds", 0, "in place of -for: how many rounds")
	flag.IntVar(&s.networks, "networks", 24, "networks on each host in each round; on each other one is a container")
	flag.IntVar(&s.short, "short", 0, "containers that live for a moment on each host in each round, besides")
	flag.IntVar(&s.many, "many", 0, "networks that are there at once in each round, besides: each host makes its share, and another one removes it")
	flag.IntVar(&s.guest, "guest", 1, "after so many rounds a host comes and goes; 0: never")
	flag.Parse()
	if s.during == 0 && s.rounds == 0 {
		s.during = 5 * time.Minute
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	wrong, err := soak(ctx, s)
	stop()
	for _, w := range wrong {
		fmt.Println("LEFT:", w)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
	}
	if err != nil || len(wrong) > 0 {
		os.Exit(1)
	}
}
