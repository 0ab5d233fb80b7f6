package pipeline

import (
	"testing"

	"pgregory.net/rapid"
)

// TestLayout fails if two stages, registers, cookie parts, kinds or reasons
// share a number.
func TestLayout(t *testing.T) {
	last := -1
	names := map[string]bool{}
	for _, s := range stages {
		if int(s.Stage) <= last || s.Stage > 253 {
			t.Errorf("stage %s has table %d, not above %d", s.Name, s.Stage, last)
		}
		if last = int(s.Stage); names[s.Name] {
			t.Errorf("two stages are named %s", s.Name)
		}
		names[s.Name] = true
	}
	used := map[int]uint32{}
	for _, r := range registers {
		if r.Num > 15 || r.Bits < 1 || r.Low+r.Bits > 32 {
			t.Errorf("register %s is no run of bits: %+v", r.Name, r)
		}
		if used[r.Num]&r.mask() != 0 {
			t.Errorf("register %s overlaps another in reg%d", r.Name, r.Num)
		}
		used[r.Num] |= r.mask()
	}
	seen := map[Reason]bool{}
	for _, r := range reasons {
		if seen[r.Reason] {
			t.Errorf("two reasons have number %d", r.Reason)
		}
		seen[r.Reason] = true
	}
	kinds := map[string]bool{}
	for _, name := range kindNames {
		if kinds[name] {
			t.Errorf("two kinds are named %q", name)
		}
		kinds[name] = true
	}
}

// TestCookie: the parts of a cookie do not touch each other.
func TestCookie(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Cookie{
			Round: rapid.Uint8().Draw(t, "round"), Stage: Stage(rapid.Uint8().Draw(t, "stage")),
			Kind: ObjectKind(rapid.Uint8().Draw(t, "kind")), Object: rapid.Uint64Range(0, 1<<40-1).Draw(t, "object"),
		}
		if got := ParseCookie(c.Pack()); got != c {
			t.Fatalf("%+v became %+v", c, got)
		}
	})
}
