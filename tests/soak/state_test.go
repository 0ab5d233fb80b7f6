package main

import (
	"slices"
	"testing"
)

// What grows but for what is remembered for three days is said.
func TestLeft(t *testing.T) {
	before := account{live: map[string]int{"networks": 1, "claims": 9}, entries: map[string]int{"ipam lease": 1, "replica/graves": 4}}
	after := account{live: map[string]int{"networks": 2, "claims": 19}, entries: map[string]int{"ipam lease": 3, "replica/graves": 400, "ipam seen": 7}}
	want := []string{
		"host1: 2 records of networks, and 1 before",
		"host1: 3 entries of ipam lease in the state file, and 1 before",
	}
	if got := after.left("host1", before); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := before.left("host1", after); len(got) > 0 {
		t.Errorf("less is nothing left: %q", got)
	}
}
