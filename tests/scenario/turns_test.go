package scenario

import "testing"

// On a crowded machine one script runs at a time, and never none.
func TestTurnsOnACrowdedMachine(t *testing.T) {
	crowded := true
	p := &turns{all: 2, free: 2, crowded: func() bool { return crowded }}
	if !p.take() {
		t.Fatal("nobody runs, and the first script does not begin")
	}
	if p.take() {
		t.Error("a second script begins on a crowded machine")
	}
	crowded = false
	if !p.take() {
		t.Error("there is a place, and the second script does not begin")
	}
	if p.take() {
		t.Error("a third script begins, where two may run")
	}
	p.leave()
	p.leave()
	crowded = true
	if !p.take() {
		t.Error("nobody runs any more, and the next script does not begin")
	}
}
