package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// step does one thing and says in a few words what came of it.
type step struct {
	what string
	do   func(context.Context) (said string, err error)
}

// stepTime is for one step; the slowest takes some seconds.
const stepTime = 2 * time.Minute

type demo struct {
	out  io.Writer
	keep string // the file for the lab's name; empty: it is not kept
	lab  *lab.Lab
	ends map[string]lab.Container // by name
}

// run does the steps until one fails, and then puts everything away, unless it is
// to be kept.
func (d *demo) run(ctx context.Context) error {
	begin := time.Now()
	failed := d.each(ctx)
	if failed == nil && d.keep != "" {
		fmt.Fprintf(d.out, "\nThe hosts go on. To look around:\n%s  the end   make demo-clean      (the lab is called %s)\n", d.lab.Tour(), d.lab.ID())
		return errors.Join(d.lab.Note(d.keep), d.lab.Keep())
	}
	if err := d.close(); err != nil {
		fmt.Fprintf(d.out, "    %s the lab could not be removed: %v\n", cross, err)
		failed = errors.Join(failed, err)
	}
	if failed == nil {
		fmt.Fprintf(d.out, "\nAll of it worked, in %.0f s. The machine is as it was.\n", time.Since(begin).Seconds())
	}
	return failed
}

func (d *demo) close() error {
	if d.lab == nil {
		return nil
	}
	return d.lab.Close()
}

const check, cross = "✓", "✗"

func (d *demo) each(ctx context.Context) error {
	steps := d.steps()
	for i, s := range steps {
		fmt.Fprintf(d.out, "[%d/%d] %s\n", i+1, len(steps), s.what)
		begin := time.Now()
		stepCtx, cancel := context.WithTimeout(ctx, stepTime)
		said, err := s.do(stepCtx)
		cancel()
		took := time.Since(begin).Seconds()
		if err != nil {
			fmt.Fprintf(d.out, "    %s failed after %.1f s\n", cross, took)
			d.explain(i+1, s.what, err)
			return err
		}
		fmt.Fprintf(d.out, "    %s %s (%.1f s)\n", check, said, took)
	}
	return nil
}

// explain says which step failed and why, with the end of the agents' logs.
func (d *demo) explain(n int, what string, err error) {
	fmt.Fprintf(d.out, "\nStep %d (%s) failed:\n%s\n", n, what, indent(err.Error()))
	if errors.Is(err, context.Canceled) {
		fmt.Fprintln(d.out, "It was interrupted.")
		return
	}
	if d.lab == nil {
		return
	}
	for _, h := range d.lab.Hosts {
		if log := h.Log("agent", 12); log != "" && !strings.HasPrefix(log, "open ") {
			fmt.Fprintf(d.out, "\nThe end of %s's agent log:\n%s\n", h.Name, indent(log))
		}
	}
}

func (d *demo) progress(line string) { fmt.Fprintln(d.out, "      "+line) }

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ")
}

func requireRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("hosts are made of namespaces, which takes root: run it as root (sudo make demo)")
	}
	return nil
}
