package secure

import (
	"testing"
	"time"
)

// TestHeardByTheKeyOfThen: a host whose device is new hears another one by its former key, since that one has not made its own anew yet. When the record
// with the new key comes between the look at the device and the next step, it is not sent to by that device before it was heard by the new key: there is
// no session, and what is sent would wait for one.
func TestHeardByTheKeyOfThen(t *testing.T) {
	all := newKeyed(t)
	a, b := all[0], all[1]
	meet(t, all)
	a.order = true
	until := func(what string, done func() bool, act ...*keyed) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not %s: %d (%s) and %d (%s), %v", what, a.now.turn, a.waits, b.now.turn, b.waits, a.heard)
			}
			round(t, all, act...)
		}
	}
	until("moved", func() bool { return a.now.step() == moved && b.now.step() == moved }, a, b)
	until("renewed", func() bool { return a.now.step() == renewed }, a)
	b.snap = a.snap
	// b hears of it, and does not go on yet.
	for end := time.Now().Add(20 * time.Second); !a.heard[0][two]; time.Sleep(50 * time.Millisecond) {
		for _, h := range []*keyed{b, a} {
			h.Do(func() {
				if err := h.Ensure(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		}
		if time.Now().After(end) {
			t.Fatalf("a has not heard b by its former key: %v", a.heard)
		}
	}
	was := b.now.first
	until("renewed", func() bool { return b.now.step() == renewed }, b)
	if b.now.first == was {
		t.Fatal("b has its former key")
	}
	a.Do(func() {
		if err := a.Ensure(t.Context()); err != nil { // it has not heard of that key
			t.Fatal(err)
		}
		a.snap = b.snap
		a.advance(t.Context())
	})
	if a.now.step() != renewed {
		t.Errorf("a sends by the new device, where it has heard b by the key of before alone")
	}
}
