package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/grapevine-net/grapevine/api"
)

// Thousands of names that several containers answer to are few lines.
func TestSharedLines(t *testing.T) {
	var many []string
	for i := range 2000 {
		many = append(many, fmt.Sprintf("a%04d", i))
	}
	endpoints := []api.Endpoint{
		{Network: "front", Host: "host2", Shared: []string{"api"}},
		{Network: "front", Host: "host1", Shared: []string{"api"}},
		{Network: "back", Host: "host1", Shared: many},
		{Network: "back", Host: "host2", Shared: many},
		{Network: "back", Host: "host3", Shared: []string{"own", "two"}},
		{Network: "back", Host: "host4", Shared: []string{"own", "two"}},
		{Network: "back", Host: "host4"},
	}
	want := []string{
		"",
		"Shared: containers of host1 and host2 answer to a0000, a0001, a0002, a0003, a0004 and 1995 more on back.",
		"Shared: containers of host3 and host4 answer to own and two on back.",
		"Shared: containers of host1 and host2 answer to api on front.",
	}
	if got := sharedLines(endpoints); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := sharedLines(nil); got != nil {
		t.Errorf("%q of nothing", got)
	}
	endpoints = nil
	for i := range 3000 { // each shared by two hosts of its own, on one network
		for j := range 2 {
			endpoints = append(endpoints, api.Endpoint{Network: "blue", Host: fmt.Sprintf("host%d", i+j), Shared: many[i%2000 : i%2000+1]})
		}
	}
	if got := sharedLines(endpoints); len(got) > 22 {
		t.Errorf("%d lines", len(got))
	}
}
