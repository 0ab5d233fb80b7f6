package pulse

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestWait: whenever somebody begins to wait, it ends at a moment, and at most half of what is between two of them too
// early or too late; who has waited until one waits for as long as was asked for.
func TestWait(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		since := time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "since"))
		d := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "d"))
		got := wait(since, d)
		if d < Every {
			if got != d {
				t.Fatalf("for %v it is %v", d, got)
			}
			return
		}
		apart := Every
		if d >= Long {
			apart = Long
		}
		if (since+got)%apart != 0 || got <= 0 || got < d-apart/2 || got > d+apart/2 {
			t.Fatalf("for %v, %v after a moment, it is %v", d, since, got)
		}
		d = d / apart * apart
		late := time.Duration(rapid.Int64Range(0, int64(apart/2-1)).Draw(t, "late")) // as long as the look took
		if next := wait(since+got+late, d); late+next != d {
			t.Fatalf("%v after a moment %v are %v", late, d, next)
		}
	})
}

// TestTogether: those who begin to wait at any time, each for another while, wake at the same moments.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		woke := map[time.Time]bool{}
		for i, d := range []time.Duration{time.Second, time.Second, 2 * time.Second, 600 * time.Millisecond} {
			time.Sleep(time.Duration(i) * 37 * time.Millisecond)
			woke[<-After(d)] = true
		}
		var first time.Time
		for at := range woke {
			if first.IsZero() {
				first = at
			}
			if at.Sub(first)%Every != 0 {
				t.Errorf("somebody woke %v beside the others", at.Sub(first)%Every)
			}
		}
	})
}
