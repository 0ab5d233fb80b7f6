// Package tests runs the scenarios of tests/scenarios on hosts made of namespaces;
// tests/uml runs the main ones on kernels of their own.
package tests

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/tests/lab"
	"github.com/grapevine-net/grapevine/tests/scenario"
)

var compose = flag.String("compose", "trixie", "the Debian whose Docker Compose the hosts have")

var tree = flag.String("tree", "", "a debootstrapped Debian whose programs the hosts use: another release of Docker")

var env = flag.String("env", "", "settings of all agents, separated by spaces: GRAPEVINE_FASTPATH=on")

func TestMain(m *testing.M) { lab.Main(m) }

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("scenarios/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
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
