package main

import "testing"

// TestBroken: what `make flood` found breaks its bounds, and what was measured since does not.
func TestBroken(t *testing.T) {
	for _, c := range []struct {
		at     string
		cost   cost
		broken bool
	}{
		{"gossip, TCP", cost{kB: 42 << 10, files: 4151, goroutines: 7159}, true},
		{"gossip, TCP", cost{kB: 1 << 10, files: 129, goroutines: 131}, false},
		{"a published port, IPv6, TCP", cost{kB: 64 << 10, files: 19521, goroutines: 7641}, false},
		{"metrics", cost{kB: 97 << 10}, true},
		{"metrics", cost{files: 32, goroutines: 259}, false},
		{"names in a container, UDP", cost{kB: 11 << 10, files: 110, goroutines: 259}, false},
		{"names in a container, UDP", cost{files: 4096}, true},
		{"what has no bound", cost{files: 1}, true},
	} {
		c.cost.sent = 1000
		if wrong := c.cost.broken(flood{at: c.at, how: "silent"}); (len(wrong) > 0) != c.broken {
			t.Errorf("%s, %+v: %v", c.at, c.cost, wrong)
		}
	}
}
