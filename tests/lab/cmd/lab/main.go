// Command lab starts and removes labs by hand.
//
//	lab up [-hosts 3] [-kind namespace|uml] [-tree DIR] [-compose PROGRAM] [-agents=false]
//	                            start one and keep it (Ctrl-C ends a UML one)
//	lab list                    what labs there are
//	lab clean [-kept] [-noted FILE] [NAME...]
//	                            remove dead ones; all kept ones; those kept that the file names; those named
//	lab guest -tree DIR -kernel DIR [-dir DIR] [-files NAMES] [-limit 1h] PROGRAM ARGUMENTS...
//	                            run a program of the source tree in QEMU, on an ordinary kernel
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("usage: lab up|list|clean|guest")
	}
	flags := flag.NewFlagSet("lab "+args[0], flag.ExitOnError)
	switch args[0] {
	case "up":
		hosts := flags.Int("hosts", 3, "number of hosts")
		kind := flags.String("kind", "namespace", "namespace or uml")
		agents := flags.Bool("agents", true, "start the agents")
		tree := flags.String("tree", "", "a debootstrapped Debian whose programs the hosts use")
		compose := flags.String("compose", "", "Docker Compose for the hosts: what scripts/compose prints")
		_ = flags.Parse(args[1:]) // exits
		return up(ctx, lab.Options{Hosts: *hosts, Tree: *tree, Compose: *compose}, *kind, *agents)
	case "list":
		for _, l := range lab.List() {
			fmt.Println(l)
		}
		return nil
	case "clean":
		kept := flags.Bool("kept", false, "also those that were kept; those of running programs only by name")
		noted := flags.String("noted", "", "those kept ones that this file names, and no others but dead ones")
		_ = flags.Parse(args[1:]) // exits
		err := errors.Join(lab.Clean(*kept), lab.Remove(flags.Args()...))
		if *noted != "" {
			gone, failed := lab.RemoveNoted(*noted)
			for _, id := range gone {
				fmt.Println("ended", id)
			}
			err = errors.Join(err, failed)
		}
		return err
	case "guest":
		tree := flags.String("tree", "", "the guest's programs: what scripts/tree prints")
		kernel := flags.String("kernel", "", "what scripts/kernel prints")
		dir := flags.String("dir", "", "the working directory, in the source tree")
		files := flags.String("files", "bin/grapevine,scripts,docs", "what the guest has of the source tree, or with an absolute path of the machine")
		limit := flags.Duration("limit", time.Hour, "how long it may take")
		_ = flags.Parse(args[1:]) // exits
		return lab.Guest{
			Tree: *tree, Kernel: *kernel, Argv: flags.Args(), Dir: *dir,
			Files: append(strings.Split(*files, ","), flags.Arg(0)), Limit: *limit, Stdout: os.Stdout, Stderr: os.Stderr,
			Progress: func(line string) { fmt.Fprintln(os.Stderr, line) },
		}.Run(ctx)
	}
	return fmt.Errorf("unknown command %q: up, list, clean or guest", args[0])
}

func up(ctx context.Context, opts lab.Options, kind string, agents bool) (err error) {
	opts.Progress = func(line string) { fmt.Println(line) }
	if kind == lab.UML.String() {
		opts.Kind = lab.UML
	}
	l, err := lab.New(ctx, opts)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := l.Close(); err == nil {
			err = closeErr
		}
	}()
	if agents {
		if err := l.StartAgents(ctx); err != nil {
			return err
		}
	}
	if opts.Kind == lab.Namespace {
		fmt.Print(l.Tour())
		return l.Keep()
	}
	fmt.Println("Ctrl-C ends it.")
	<-ctx.Done()
	return nil
}
