// Package tests runs the scenarios of tests/scenarios on hosts made of namespaces;
// tests/uml runs the main ones on kernels of their own.
package tests

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/tests/lab"
	"github.com/grapevine-net/grapevine/tests/scenario"
	"github.com/grapevine-net/grapevine/tests/turns"
)

var compose = flag.String("compose", "trixie", "the Debian whose Docker Compose the hosts have")

var tree = flag.String("tree", "", "a debootstrapped Debian whose programs the hosts use: another release of Docker")

var env = flag.String("env", "", "settings of all agents, separated by spaces: GRAPEVINE_FASTPATH=on")

// byTurns is for a run of all tests, of which the processors' time is short.
var byTurns = flag.Bool("turns", false, "of the scenarios that cost most, one: which, takes turns by the hour")

// costly are those that take a minute of a processor each.
var costly = []string{"hundred-containers", "moby-networks", "short-lived"}

func TestMain(m *testing.M) { lab.Main(m) }

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("scenarios/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, name := range costly {
		if !slices.Contains(files, "scenarios/"+name+".txtar") {
			t.Fatalf("%s is among those that cost most, and is no scenario", name)
		}
	}
	if *byTurns {
		files = slices.DeleteFunc(files, func(file string) bool {
			i := slices.Index(costly, strings.TrimSuffix(filepath.Base(file), ".txtar"))
			return i >= 0 && i != turns.Of(len(costly))
		})
	}
	script := exec.CommandContext(t.Context(), "../scripts/compose", *compose)
	script.Stderr = os.Stderr
	program, err := script.Output()
	if err != nil {
		t.Fatalf("scripts/compose: %v", err)
	}
	opts := lab.Options{Kind: lab.Namespace, Tree: *tree, Compose: strings.TrimSpace(string(program)), AgentEnv: strings.Fields(*env)}
	scenario.Run(t, opts, files...)
}
