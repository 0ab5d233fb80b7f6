// Command flood sends what somebody sends who has no key, as fast as one program can, to every socket that an agent has on a
// Docker host: from outside, from the host, from a container of the overlay and from one of a plain bridge. It prints what each flood
// cost the agent, and what still worked, as rows of a table; it fails if a bound is broken, or if there is a socket that no flood was sent to.
//
//	flood -for 4s
//
// docs/measurements/floods.md has the record of a run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

func main() {
	lab.Init()
	during := flag.Duration("for", 4*time.Second, "how long each flood lasts")
	only := flag.String("only", "", "only floods of what has this in its name")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *during, *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "flood:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, during time.Duration, only string) (err error) {
	l, err := lab.New(ctx, lab.Options{Hosts: 3})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	w := &world{lab: l, host: l.Hosts[0], other: l.Hosts[1], edge: l.Hosts[2]}
	if err := w.prepare(ctx); err != nil {
		return err
	}
	floods, err := w.floods(ctx)
	if err != nil {
		return err
	}
	fmt.Println("| at | from | what | sent | agent: memory | files | goroutines | processor | Open vSwitch, WireGuard | meanwhile: a ping between containers, `grapevine status` |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|")
	var wrong []error
	for _, f := range floods {
		if !strings.Contains(f.at, only) {
			continue
		}
		c, err := w.measure(ctx, f, during)
		if err != nil {
			return fmt.Errorf("flood %s from %s: %w", f.at, f.from, err)
		}
		fmt.Println(c.row(f))
		wrong = append(wrong, c.broken(f)...)
	}
	return errors.Join(append(wrong, w.forgotten(ctx, floods))...)
}
