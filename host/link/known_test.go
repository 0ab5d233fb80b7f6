package link

import (
	"errors"
	"testing"
)

// TestKnownBPF: an object is asked for once, but for one that could not be, and no more are kept than may be.
func TestKnownBPF(t *testing.T) {
	k, asked := knownBPF{most: 3}, 0
	get := func() (string, error) { asked++; return "gv_tunnel", nil }
	for range 3 {
		if what, err := k.of(7, get); what != "gv_tunnel" || err != nil {
			t.Fatal(what, err)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	failed := errors.New("no")
	if what, err := k.of(8, func() (string, error) { return "half", failed }); what != "" || err != failed {
		t.Errorf("%q, %v", what, err)
	}
	for id := range uint32(10) {
		if _, err := k.of(id, get); err != nil || len(k.what) > k.most {
			t.Fatalf("%d are kept, %v", len(k.what), err)
		}
	}
}
