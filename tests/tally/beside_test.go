package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTiersOf: by their names, in their order; what is none is said.
func TestTiersOf(t *testing.T) {
	list, err := tiersOf([]string{"lab", "unit"})
	if err != nil || len(list) != 2 || list[0].name != "lab" || list[1].name != "unit" {
		t.Errorf("lab and unit are %v, %v", list, err)
	}
	if _, err := tiersOf([]string{"lab", "/"}); err == nil || !strings.Contains(err.Error(), `"/"`) {
		t.Errorf("what is no tier: %v", err)
	}
}

// TestRunBeside: each tier is run and counted once, and the lines are in the order of the names.
func TestRunBeside(t *testing.T) {
	const pkg = "github.com/grapevine-net/grapevine/tests/tally"
	of := func(name, test string) tier {
		return tier{name: name, args: []string{"-run", "^" + test + "$", pkg}, budget: time.Minute}
	}
	var out strings.Builder
	total, times, err := runBeside(t.Context(), &shared{to: &out}, []tier{of("one", "TestTally"), of("two", "TestBusyOf"), of("three", "TestTiersOf")}, 2)
	if err != nil || total.passed != 3 || total.failed != 0 {
		t.Errorf("%+v, %v\n%s", total, err, out.String())
	}
	var names []string
	for line := range strings.Lines(times) {
		names = append(names, strings.Fields(line)[0])
	}
	if want := []string{"one", "two", "three"}; !slices.Equal(names, want) {
		t.Errorf("the lines are of %v, want %v", names, want)
	}
}

// TestBusyOf: what is waited for, the disk too, is not busy.
func TestBusyOf(t *testing.T) {
	if got, want := busyOf("cpu  10 1 20 300 40 2 3 4 0 0\ncpu0 1 2\n"), (ticks{380, 40}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := busyOf("intr 7\n"); got != (ticks{}) {
		t.Errorf("no such line: %+v", got)
	}
}
