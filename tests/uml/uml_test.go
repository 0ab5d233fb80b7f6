// Package uml runs scenarios on hosts with kernels of their own: User-Mode Linux
// and Open vSwitch's kernel datapath.
package uml

import (
	"path/filepath"
	"testing"

	"github.com/grapevine-net/grapevine/tests/lab"
	"github.com/grapevine-net/grapevine/tests/scenario"
)

func TestMain(m *testing.M) { lab.Main(m) }

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	scenario.Run(t, lab.Options{Kind: lab.UML}, files...)
}
