// Package qemu runs scenarios in a guest: on an ordinary kernel, which QEMU emulates, with
// Open vSwitch's kernel datapath, connection tracking, a BPF JIT and SCTP.
package qemu

import (
	"bytes"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
	"github.com/grapevine-net/grapevine/tests/scenario"
)

var (
	env       = flag.String("env", "GRAPEVINE_FASTPATH=on", "settings of all agents, separated by spaces")
	arch      = flag.String("arch", runtime.GOARCH, "the guest's architecture, amd64 or arm64")
	scenarios = flag.String("scenarios", "one-network,fastpath,published-ports,uml/kernel", "names or patterns of scenarios, those of tests/scenarios without a directory")
)

func TestMain(m *testing.M) { lab.Main(m) }

func TestScenarios(t *testing.T) {
	if !lab.InGuest() {
		files := []string{"tests/scenarios", "tests/engines", "tests/uml"}
		if *arch == runtime.GOARCH { // Compose is of this machine, and so those of another one have none
			files = append(files, compose(t))
		}
		inGuest(t, files, "-test.parallel=1", "-env", *env, "-scenarios", *scenarios)
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
	opts := lab.Options{AgentEnv: strings.Fields(*env)}
	if runtime.GOARCH == "amd64" {
		opts.Compose = compose(t)
	}
	scenario.Run(t, opts, files...)
}

// TestPolicyPackets sends packets past policies beside Open vSwitch's kernel datapath: hostile ones, of all protocols, in fragments,
// behind headers, and those of connections that a policy cuts.
func TestPolicyPackets(t *testing.T) {
	if !lab.InGuest() {
		program := build(t, filepath.Join(t.TempDir(), "overlay.test"), "test", "-c", "-ldflags=-w", "../../overlay")
		inGuest(t, []string{program + "=/grapevine/bin/overlay.test"})
		return
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "../../bin/overlay.test", "-test.v", "-test.run=Policy(OfPackets|Cuts|OfAll|Behind|Fragments)|Reject|RuleCounts|ManyPeers")
	cmd.Env = append(os.Environ(), "GRAPEVINE_OVSTEST_DATAPATH=kernel")
	cmd.Stdout, cmd.Stderr = io.MultiWriter(t.Output(), &said), t.Output()
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"OfPackets", "Cuts", "OfAllProtocols", "BehindHeaders"} {
		if !strings.Contains(said.String(), "--- PASS: TestPolicy"+name+" ") {
			t.Errorf("TestPolicy%s did not pass", name)
		}
	}
}

// inGuest runs this test in a guest that has these files besides, with these arguments.
func inGuest(t *testing.T, files []string, args ...string) {
	limit := 2 * time.Hour
	if end, ok := t.Deadline(); ok {
		limit = time.Until(end) - 10*time.Second
	}
	g := lab.Guest{
		Arch: *arch, Tree: script(t, "tree", "--arch", *arch, "trixie"), Kernel: script(t, "kernel", "--arch", *arch, "trixie"),
		Argv: append([]string{filepath.Join("bin", filepath.Base(os.Args[0])), "-test.v", "-test.run=^" + t.Name() + "$"}, args...),
		Dir:  "tests/qemu", Files: append(files, "scripts", "docs", "README.md", "examples", "tests/qemu"),
		Limit: limit, Stdout: t.Output(), Stderr: t.Output(), Progress: func(line string) { t.Log(line) },
	}
	if *arch == runtime.GOARCH {
		g.Files = append(g.Files, "bin/grapevine")
	} else {
		dir := t.TempDir()
		g.Program = build(t, filepath.Join(dir, "qemu.test"), "test", "-c", "-ldflags=-w", ".")
		g.Files = append(g.Files, build(t, filepath.Join(dir, "grapevine"), "build", "-trimpath", "-ldflags=-s -w", "../../cmd/grapevine")+"=/grapevine/bin/grapevine")
	}
	if err := g.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// build makes a program for the guest.
func build(t *testing.T, file, how string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{how, "-o", file}, args...)...)
	cmd.Env = append(os.Environ(), "GOARCH="+*arch, "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v: %s", how, err, out)
	}
	return file
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
