package main

import "testing"

// The bounds are those of the exact tables: the median of 25 is between the 8th smallest and the 8th largest.
func TestSurely(t *testing.T) {
	for n, rank := range map[int]int{0: 0, 1: 0, 5: 0, 6: 1, 8: 1, 9: 2, 10: 2, 15: 4, 20: 6, 25: 8, 100: 40, 250: 110} {
		var v []float64
		for i := n; i > 0; i-- {
			v = append(v, float64(i))
		}
		low, high, ok := surely(v)
		if ok != (rank > 0) || low != float64(rank) || ok && high != float64(n+1-rank) {
			t.Errorf("of %d: %v to %v, %v; want the %dth of each end", n, low, high, ok, rank)
		}
	}
}
