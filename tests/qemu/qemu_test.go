// Package qemu runs scenarios in a guest: on an ordinary kernel, which QEMU emulates, with
// Open vSwitch's kernel datapath, connection tracking, a BPF JIT and SCTP.
package qemu

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
	"github.com/grapevine-net/grapevine/tests/scenario"
)

var (
	env       = flag.String("env", "GRAPEVINE_FASTPATH=on", "settings of all agents, separated by spaces")
	scenarios = flag.String("scenarios", "one-network,fastpath,published-ports,uml/kernel", "names or patterns of scenarios, those of tests/scenarios without a directory")
)

func TestMain(m *testing.M) { lab.Main(m) }

func TestScenarios(t *testing.T) {
	if !lab.InGuest() {
		inGuest(t)
		return
	}
	var files []string
	for name := range strings.SplitSeq(*scenarios, ",") {
		if filepath.Base(name) == name {
			name = filepath.Join("scenarios", name)
		}
		found, err := filepath.Glob("../" + name + ".txtar")
		if err != nil || len(found) == 0 {
			t.Fatalf("there is no scenario %s: %v", name, err)
		}
		files = append(files, found...)
	}
	scenario.Run(t, lab.Options{AgentEnv: strings.Fields(*env), Compose: compose(t)}, files...)
}

// inGuest runs this test in a guest.
func inGuest(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	limit := 2 * time.Hour
	if end, ok := t.Deadline(); ok {
		limit = time.Until(end) - 10*time.Second
	}
	if err := (lab.Guest{
		Tree: script(t, "tree", "trixie"), Kernel: script(t, "kernel", "trixie"),
		Argv: []string{filepath.Join("bin", filepath.Base(program)), "-test.v", "-test.parallel=1", "-env", *env, "-scenarios", *scenarios},
		Dir:  "tests/qemu", Files: []string{"bin/grapevine", "scripts", "docs", "README.md", "examples", "tests/scenarios", "tests/uml", compose(t)},
		Limit: limit, Stdout: t.Output(), Stderr: t.Output(), Progress: func(line string) { t.Log(line) },
	}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func compose(t *testing.T) string { return script(t, "compose", "trixie") }

// script returns what a program of scripts/ prints.
func script(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "../../scripts/"+name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("scripts/%s: %v", name, err)
	}
	return strings.TrimSpace(string(out))
}
