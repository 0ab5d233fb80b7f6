// Package plugin runs scenarios with the managed plugin in place of the agent.
package plugin

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

// byTurns is for a run of all tests, of which the processors' time is short.
var byTurns = flag.Bool("turns", false, "what is rare once in four hours")

// rare is what takes a minute, and differs little from what is run without the plugin: in which of four hours.
var rare = map[string]int{"isolation.txtar": 0, "encrypted.txtar": 1, "ufw-firewalld.txtar": 2, "isolation-firewalls.txtar": 3, "policies.txtar": 0}

// tree runs the scenarios with another release of Docker: a Debian of scripts/tree.
var tree = flag.String("tree", "", "a debootstrapped Debian whose programs the hosts use")

func TestMain(m *testing.M) { lab.Main(m) }

// directory is where `make test-plugin` lays the plugin out.
const directory = "../../build/plugin"

func TestScenarios(t *testing.T) {
	if _, err := os.Stat(filepath.Join(directory, "config.json")); err != nil {
		t.Fatalf("no plugin to test: %v; run scripts/build-plugin --directory build/plugin", err)
	}
	files, err := filepath.Glob("*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, name := range shared {
		files = append(files, withPlugin(t, name))
	}
	if *byTurns {
		files = slices.DeleteFunc(files, func(f string) bool { turn, is := rare[filepath.Base(f)]; return is && turns.Of(4) != turn })
	}
	script := exec.CommandContext(t.Context(), "../../scripts/compose")
	script.Stderr = os.Stderr
	compose, err := script.Output()
	if err != nil {
		t.Fatalf("scripts/compose: %v", err)
	}
	scenario.Run(t, lab.Options{Kind: lab.Namespace, Plugin: directory, Tree: *tree, Compose: strings.TrimSpace(string(compose))}, files...)
}
