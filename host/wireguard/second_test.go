package wireguard

import (
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestSecond: of two devices the one whose metric is less is the way, the other one is listened to, and either may go.
func TestSecond(t *testing.T) {
	a, b := newEnd(t, 1), newEnd(t, 2)
	linktest.Wire(t, "eth0", a.NS, b.NS, []string{"192.0.2.1/24"}, []string{"192.0.2.2/24"})
	second := func(e *end) *end {
		s := *e
		s.device.Name, s.device.Metric, s.key, s.port = link.WireGuard2, Behind, Key{0: e.key[0], 5: 78, 31: 64}, 7950
		t.Cleanup(func() { e.Do(func() { _, _ = s.device.Drop() }) })
		return &s
	}
	a2, b2 := second(a), second(b)
	a.ensure(b)
	b.ensure(a)
	a2.ensure(b2)
	b2.ensure(a2)
	way := func(e *end) string {
		got := e.run("ip", "-6", "route", "get", "fd67:1::9")
		_, name, _ := strings.Cut(got, " dev ")
		return strings.Fields(name)[0]
	}
	hear := func(when string, want string) {
		t.Helper()
		if got := way(a); got != want {
			t.Errorf("%s: sent by %s, want %s", when, got, want)
		}
		if !a.says(b) || !b.says(a) {
			t.Errorf("%s: the two ends do not hear each other", when)
		}
	}
	hear("behind", "gvwg")
	a2.device.Metric = Before
	a2.ensure(b2)
	hear("before, on one side", "gvwg2")
	b2.device.Metric = Before
	b2.ensure(a2)
	for _, e := range []*end{a, b} {
		e.Do(func() {
			if _, err := e.device.Drop(); err != nil {
				t.Fatal(err)
			}
		})
		e.key[5] = 79
	}
	hear("without the first", "gvwg2")
	a.ensure(b)
	b.ensure(a)
	a2.device.Metric = Behind
	a2.ensure(b2)
	hear("with a new one, on one side", "gvwg")
	for _, e := range []*end{a2, b2} {
		e.Do(func() {
			if gone, err := e.device.Drop(); err != nil || len(gone) == 0 {
				t.Fatal(gone, err)
			}
		})
	}
	hear("without the second", "gvwg")
}
