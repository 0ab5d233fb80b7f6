package pipeline

import (
	"testing"
)

func TestNextGeneration(t *testing.T) {
	for _, c := range []struct {
		now    uint16
		writes []uint16
		want   uint16
	}{
		{1, nil, 2},
		{1, []uint16{1}, 2},
		{1, []uint16{2, 2}, 3},
		{7, []uint16{5}, 8},
		{65535, []uint16{65535}, 1},
		{65535, []uint16{1, 2}, 3},
		{1, []uint16{65535}, 2},
	} {
		flows := []Flow{{Actions: actions(load(regSettled, 1), move(regGeneration.part(), "NXM_OF_ETH_SRC[24..39]"))}}
		for _, n := range c.writes {
			flows = append(flows, Flow{Actions: actions(load(regTracked, 1), load(regGeneration, uint32(n)), goTo(EgressEpoch))})
		}
		if got := NextGeneration(c.now, flows); got != c.want {
			t.Errorf("behind %d, and flows that write %d, comes %d, want %d", c.now, c.writes, got, c.want)
		}
	}
}
