// Package uml runs scenarios on hosts with kernels of their own: User-Mode Linux
// and Open vSwitch's kernel datapath.
package uml

import (
	"flag"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
	"github.com/grapevine-net/grapevine/tests/scenario"
)

// byTurns is for a run of all tests, of which the processors' time is short: every second scenario, and by the next
// hour the others.
var byTurns = flag.Bool("turns", false, "half of the scenarios: which half, takes turns by the hour")

var env = flag.String("env", "", "settings of all agents, separated by spaces: GRAPEVINE_FASTPATH=on")

func TestMain(m *testing.M) { lab.Main(m) }

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	if *byTurns {
		files = half(files, turn())
	}
	scenario.Run(t, lab.Options{Kind: lab.UML, AgentEnv: strings.Fields(*env)}, files...)
}

// turn is whose turn it is, 0 or 1, in the hour in which this program began: a run that goes on into the next hour
// has one turn.
var turn = sync.OnceValue(func() int { return int(time.Now().Unix() / 3600 % 2) })

// half is every second one of the files, which are sorted, from the one of that number on.
func half(files []string, from int) (list []string) {
	for i := from; i < len(files); i += 2 {
		list = append(list, files[i])
	}
	return list
}

// TestHalf: each scenario is in one of the halves.
func TestHalf(t *testing.T) {
	files, err := filepath.Glob("*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	both := append(half(files, 0), half(files, 1)...)
	slices.Sort(both)
	if !slices.Equal(both, files) || len(half(files, 0)) == 0 || len(half(files, 1)) == 0 {
		t.Errorf("of %v the halves are %v and %v", files, half(files, 0), half(files, 1))
	}
}
