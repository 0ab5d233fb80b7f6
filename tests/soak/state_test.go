package main

import (
	"slices"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
)

// What grows but for what is remembered for three days is said.
func TestLeft(t *testing.T) {
	before := account{live: map[cluster.Kind]int{cluster.KindNetwork: 1, cluster.KindClaim: 9}, entries: map[string]int{"ipam lease": 1, "replica/graves": 4}}
	after := account{live: map[cluster.Kind]int{cluster.KindNetwork: 2, cluster.KindClaim: 19}, entries: map[string]int{"ipam lease": 3, "replica/graves": 400, "ipam seen": 7}}
	want := []string{
		"host1: 2 records of kind network, and 1 before",
		"host1: 3 entries of ipam lease in the state file, and 1 before",
	}
	if got := after.left("host1", before); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := before.left("host1", after); len(got) > 0 {
		t.Errorf("less is nothing left: %q", got)
	}
}
