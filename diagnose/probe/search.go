package probe

import (
	"fmt"
	"slices"
)

// perRound is how many sizes are tried at once: three rounds for an Ethernet's MTU.
const perRound = 15

// search returns the largest size up to limit that passes, 0: none does. try sends
// probes of the sizes and returns those that arrived.
func search(limit int, try func(sizes []int) ([]int, error)) (int, error) {
	if limit < smallest || limit > largest {
		return 0, fmt.Errorf("an MTU of %d bytes is none of %d to %d", limit, smallest, largest)
	}
	arrived, err := try([]int{smallest, limit})
	switch {
	case err != nil || len(arrived) == 0:
		return 0, err
	case slices.Contains(arrived, limit):
		return limit, nil
	}
	for low, high := smallest, limit; ; {
		sizes := between(low, high)
		if len(sizes) == 0 {
			return low, nil
		}
		if arrived, err = try(sizes); err != nil {
			return 0, err
		}
		for _, s := range sizes {
			if !slices.Contains(arrived, s) {
				high = s
				break
			}
			low = s
		}
	}
}

// between spreads sizes over what is greater than low and less than high.
func between(low, high int) (sizes []int) {
	n := min(perRound, high-low-1)
	for i := 1; i <= n; i++ {
		sizes = append(sizes, low+i*(high-low)/(n+1))
	}
	return sizes
}
