package turns

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Each of a list is in one part, and no part has two more than another.
func TestPart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfDistinct(rapid.Int(), rapid.ID).Draw(t, "list")
		n := rapid.IntRange(1, 9).Draw(t, "parts")
		var all []int
		for part := range n {
			some := Part(list, n, part)
			if len(some) < len(list)/n || len(some) > len(list)/n+1 {
				t.Fatalf("part %d of %d has %d of %d", part, n, len(some), len(list))
			}
			all = append(all, some...)
		}
		slices.Sort(list)
		if slices.Sort(all); !slices.Equal(all, list) {
			t.Fatalf("of %v the parts have %v", list, all)
		}
	})
}
