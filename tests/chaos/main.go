// Command chaos lets containers and networks come and go on Docker hosts while faults
// strike. All the time it checks that nothing has two owners, that no packet crosses
// networks, and that what no fault concerns goes on. After each round of faults it checks that
// all hosts agree and all containers are reached, and at the end that nothing is left.
//
//	chaos -seed 7 -for 5m
//
// The seed says which faults and commands come in which order. docs/measurements/chaos.md says what is
// checked how, and has the record of past runs.
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

func main() {
	lab.Init()
	s := settings{out: os.Stdout}
	flag.Uint64Var(&s.seed, "seed", 1, "what is drawn depends on it")
	flag.DurationVar(&s.during, "for", 0, "how long faults strike")
	flag.IntVar(&s.rounds, "rounds", 0, "in place of -for: how many rounds of faults")
	flag.IntVar(&s.churn, "churn", 25, "at the end so many networks and containers come and go on each host, without a fault")
	flag.IntVar(&s.hosts, "hosts", 4, "number of hosts")
	flag.DurationVar(&s.within, "within", 10*time.Second, "all hosts agree so long after the last fault")
	flag.IntVar(&s.bear, "bear", 0, "so many datagrams lost in a row are no violation, on a busy machine")
	flag.BoolFunc("uml", "hosts with a kernel and a clock of their own, and the kernel's datapath", func(string) error {
		s.kind = lab.UML
		return nil
	})
	flag.Func("only", "faults, separated by commas: no others strike", func(list string) error {
		s.only = strings.Split(list, ",")
		for _, name := range s.only {
			if !slices.ContainsFunc(slices.Concat(faults, clocks), func(f fault) bool { return f.name == name }) {
				return fmt.Errorf("no fault is called %q: docs/measurements/chaos.md lists them", name)
			}
		}
		return nil
	})
	flag.StringVar(&s.logs, "logs", "", "a directory to which logs of hosts that do not agree are copied, debugging too")
	env := flag.String("env", "", "settings of all agents, separated by spaces: GRAPEVINE_FASTPATH=on")
	flag.Parse()
	s.env = strings.Fields(*env)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	wrong, err := chaos(ctx, s)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
	}
	if err != nil || len(wrong) > 0 {
		os.Exit(1)
	}
}
