// Package tests runs the scenarios of tests/scenarios on hosts made of namespaces;
// tests/uml runs the main ones on kernels of their own.
package tests

import (
	"flag"
	"path/filepath"
	"testing"

	"github.com/grapevine-net/grapevine/tests/lab"
	"github.com/grapevine-net/grapevine/tests/scenario"
)

var tree = flag.String("tree", "", "a debootstrapped Debian whose programs the hosts use: another release of Docker")

func TestMain(m *testing.M) { lab.Main(m) }

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("scenarios/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	scenario.Run(t, lab.Options{Kind: lab.Namespace, Tree: *tree}, files...)
}
