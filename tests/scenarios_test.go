// Package tests runs the scenarios of tests/scenarios on hosts made of namespaces;
// tests/uml runs the main ones on kernels of their own.
package tests

import (
	"path/filepath"
	"testing"

	"github.com/grapevine-net/grapevine/tests/lab"
	"github.com/grapevine-net/grapevine/tests/scenario"
)

func TestMain(m *testing.M) { lab.Main(m) }

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("scenarios/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	scenario.Run(t, lab.Options{Kind: lab.Namespace}, files...)
}
