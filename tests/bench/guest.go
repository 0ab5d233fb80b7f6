package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// qemu is the kind of hosts that are namespaces in a guest with an ordinary kernel.
const qemu = "qemu"

// inGuest runs this program, with the same flags, in a guest.
func inGuest(ctx context.Context, o options) error {
	if o.tree == "" || o.kernel == "" {
		return errors.New(`-kind qemu takes -tree "$(scripts/tree trixie)" -kernel "$(scripts/kernel trixie)"`)
	}
	return lab.Guest{
		Tree: o.tree, Kernel: o.kernel,
		Argv:  append([]string{filepath.Join("bin", filepath.Base(os.Args[0]))}, os.Args[1:]...),
		Files: []string{"bin/grapevine", "scripts", "docs"},
		Limit: o.limit, Stdout: os.Stdout, Stderr: os.Stderr,
		Progress: func(line string) { progress("%s", line) },
	}.Run(ctx)
}
