package main

import (
	"flag"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
	"github.com/grapevine-net/grapevine/tests/turns"
)

func TestMain(m *testing.M) { lab.Main(m) }

// Short runs, in which every fault strikes: `make chaos` does longer ones.
var shortRuns = []uint64{39, 128}

const shortRounds = 3

// byTurns is for a run of all tests, of which the processors' time is short.
var byTurns = flag.Bool("turns", false, "one of the short runs: which, takes turns by the hour")

func TestChaos(t *testing.T) {
	seeds := shortRuns
	if *byTurns {
		seeds = turns.Part(seeds, len(seeds), turns.Of(len(seeds)))
	}
	for _, seed := range seeds {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			wrong, err := chaos(t.Context(), settings{seed: seed, hosts: 4, rounds: shortRounds, churn: 4, within: 30 * time.Second, bear: 5, out: t.Output()})
			if err != nil {
				t.Error(err)
			}
			for _, w := range wrong {
				t.Error(w)
			}
		})
	}
}

func TestShortRuns(t *testing.T) {
	left := map[string]bool{}
	for _, f := range faults {
		left[f.name] = true
	}
	for _, seed := range shortRuns {
		p := newPlanner(seed, 4, faults)
		for range shortRounds {
			for _, s := range p.next().faults {
				delete(left, s.fault)
			}
		}
	}
	if len(left) > 0 {
		t.Errorf("the short runs have none of %v: choose other seeds", left)
	}
}

// The same seed gives the same rounds, another one others; every fault is drawn; no host
// has two at a time; and what is started is removed at the end.
func TestPlan(t *testing.T) {
	const hosts, rounds = 4, 100
	plan := func(seed uint64) (all []round, rest []command) {
		p := newPlanner(seed, hosts, faults)
		for range rounds {
			all = append(all, p.next())
		}
		return all, p.rest()
	}
	one, rest := plan(1)
	again, _ := plan(1)
	other, _ := plan(2)
	if !reflect.DeepEqual(one, again) || reflect.DeepEqual(one, other) {
		t.Error("what is drawn does not depend on the seed alone")
	}
	drawn, there := map[string]bool{}, map[string]bool{}
	for _, r := range one {
		busy := map[int]bool{}
		for _, s := range r.faults {
			drawn[s.fault] = true
			for _, h := range s.on {
				if busy[h] {
					t.Errorf("%v: two faults at a host", r.faults)
				}
				busy[h] = true
			}
		}
		for _, c := range r.commands {
			there[c.name] = c.verb == "run" || c.verb == "network"
		}
	}
	for _, f := range faults {
		if !drawn[f.name] {
			t.Errorf("%s is never drawn", f.name)
		}
	}
	for _, c := range rest {
		there[c.name] = false
	}
	for name, left := range there {
		if left {
			t.Errorf("%s is left", name)
		}
	}
}
