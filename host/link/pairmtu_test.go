package link

import (
	"fmt"
	"testing"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// Both ends change, and nothing else, wherever the peer is.
func TestSetPairMTU(t *testing.T) {
	host, box := linktest.New(t), linktest.New(t)
	sandbox := fmt.Sprintf("/proc/self/fd/%d", box.FD())
	linktest.Wire(t, "other", host, box, nil, nil)
	linktest.Wire(t, "gv0123", host, box, nil, nil)
	has := func(want int) {
		t.Helper()
		for name, want := range map[string]int{"gv0123": want, "other": 1500} {
			if l, err := Get(name); err != nil || l.MTU != want {
				t.Errorf("%s has an MTU of %d, want %d: %v", name, l.MTU, want, err)
			}
		}
	}
	for _, want := range []int{1350, 8950, 1450} {
		host.Do(func() {
			for range 2 {
				ok(t, SetPairMTU("gv0123", sandbox, want))
			}
			has(want)
		})
		box.Do(func() { has(want) })
	}
	host.Do(func() {
		if err := SetPairMTU("gv0123", "/proc/self/ns/net", 1300); err == nil {
			t.Error("no error for a sandbox that does not have the peer")
		}
		if err := SetPairMTU("none", sandbox, 1300); err == nil {
			t.Error("no error for an interface that there is not")
		}
	})
}
