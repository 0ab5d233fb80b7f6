// Package uml runs scenarios on hosts with kernels of their own: User-Mode Linux
// and Open vSwitch's kernel datapath.
package uml

import (
	"flag"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/tests/lab"
	"github.com/grapevine-net/grapevine/tests/scenario"
	"github.com/grapevine-net/grapevine/tests/turns"
)

// byTurns is for a run of all tests, of which the processors' time is short.
var byTurns = flag.Bool("turns", false, "a fifth of the scenarios: which, takes turns by the hour")

const fifths = 5

// change is for isolation.txtar, which takes ten minutes with all of them. With Swarm it takes twenty and more, so that is among them only if it is named.
var change = flag.String("change", "", "of the scripts' changes this one, or these separated by commas, and not all: swarm, "+strings.Join(changes, ", "))

// changes are what isolation.txtar does to a host. By turns it is one, each time that the script has its own.
var changes = []string{"docker", "agent", "flush", "ours", "boot", "docker-first"}

var env = flag.String("env", "", "settings of all agents, separated by spaces: GRAPEVINE_FASTPATH=on")

var modules = flag.String("modules", "", "of TestEncryption, TestOutside, TestPolicies and TestServices: what scripts/kernel-modules prints")

func TestMain(m *testing.M) { lab.Main(m) }

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	if !*byTurns { // these kernels have netem, which the machine's may lack; and what a host reaches by itself, and the ports of every host, are asked of the kernel's datapath, too
		files = append(files, "../scenarios/lag.txtar", "../scenarios/reach.txtar", "../scenarios/host-changed.txtar", "../scenarios/expose.txtar", "rare/wrapped6.txtar", "rare/wrapped-userspace.txtar")
	}
	one := *change
	if *byTurns {
		files = turns.Part(files, fifths, turns.Of(fifths))
		one = changes[turns.Within(fifths, len(changes))]
	}
	some := func(name string) bool {
		return one == "" && name != "swarm" || slices.Contains(strings.Split(one, ","), name)
	}
	scenario.RunChanges(t, lab.Options{Kind: lab.UML, AgentEnv: strings.Fields(*env)}, some, files...)
}

// TestEncryption runs what wants WireGuard, ESP and nf_tables of the hosts' kernels, which have them by modules of their
// own. It is run by hand: the modules take minutes to make, and each scenario some more.
func TestEncryption(t *testing.T) {
	if *modules == "" {
		t.Skip(`by hand: -modules "$(scripts/kernel-modules)"`)
	}
	files, err := filepath.Glob("encryption/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	files = append(files, "../scenarios/encrypted-removed.txtar")
	scenario.Run(t, lab.Options{Kind: lab.UML, Modules: *modules, AgentEnv: strings.Fields(*env)}, files...)
}

// TestPolicies has Open vSwitch's kernel datapath enforce policies: Debian's User-Mode Linux tracks connections without zones, and so
// one-network.txtar sees there that none is enforced. It has no JIT compiler either, without which connections are counted only by
// who asks for it. It is run by hand, as TestEncryption is.
func TestPolicies(t *testing.T) {
	if *modules == "" {
		t.Skip(`by hand: -modules "$(scripts/kernel-modules)"`)
	}
	agents := append([]string{"GRAPEVINE_TRAFFIC=on"}, strings.Fields(*env)...)
	files := []string{"../engines/policies.txtar", "../scenarios/policy-cases.txtar", "../scenarios/policy.txtar"}
	scenario.Run(t, lab.Options{Kind: lab.UML, Modules: *modules, AgentEnv: agents}, files...)
}

// TestOutside has Open vSwitch's kernel datapath lead to the outside, and answer who comes in from there: that wants connection tracking
// with zones. (What becomes of it without is in one-network.txtar.) It is run by hand, as TestEncryption is.
func TestOutside(t *testing.T) {
	if *modules == "" {
		t.Skip(`by hand: -modules "$(scripts/kernel-modules)"`)
	}
	scenario.Run(t, lab.Options{Kind: lab.UML, Modules: *modules, AgentEnv: strings.Fields(*env)}, "../scenarios/egress.txtar")
}
