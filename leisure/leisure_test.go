package leisure

import (
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// TestLeisure: after ten seconds without work one processor is enough, and who waits has all again at once, as has a process that
// finds itself at work.
func TestLeisure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := false
		l := leisure{all: func() { one = false }, one: func() { one = true }}
		pass := func(looks int, spent time.Duration) {
			for range looks {
				time.Sleep(look)
				l.look(time.Now(), spent)
				synctest.Wait()
			}
		}
		l.begin(time.Now())
		if pass(9, 0); one {
			t.Error("it rests at once")
		}
		if pass(2, 0); !one {
			t.Error("it does not rest")
		}
		l.busy(time.Now())
		if synctest.Wait(); one {
			t.Error("who waits for an answer has one processor")
		}
		if pass(9, 0); one {
			t.Error("it rests soon after somebody has waited")
		}
		if pass(2, look/100); !one {
			t.Error("it does not rest again")
		}
		if pass(1, look/4); one {
			t.Error("it rests though it has much to do")
		}
		if pass(20, look/4); one {
			t.Error("it rests at work")
		}
		if pass(11, 0); !one {
			t.Error("it does not rest after work")
		}
		l.end()
		if l.busy(time.Now()); one {
			t.Error("it has one processor after the end")
		}
	})
}

// TestBusyMeanwhile: who comes to wait in the moment in which a process is put to rest does not have one processor.
func TestBusyMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := false
		l := leisure{all: func() { one = false }}
		l.one = func() {
			one = true
			l.last.Store(int64(time.Since(epoch))) // as busy does first, and then sees no rest yet
		}
		l.begin(time.Now())
		time.Sleep(quiet)
		l.look(time.Now(), 0)
		if synctest.Wait(); one || l.rests.Load() {
			t.Error("it rests, and somebody waits")
		}
	})
}

// TestClockSet: a clock that is set meanwhile has nobody rest earlier, or later.
func TestClockSet(t *testing.T) {
	for _, by := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		for _, long := range []bool{false, true} {
			one := false
			l := leisure{all: func() { one = false }, one: func() { one = true }}
			began := time.Now()
			if long { // else it was busy a moment ago
				began = began.Add(-quiet)
			}
			l.begin(began)
			if l.look(set(time.Now(), by), 0); one != long {
				t.Errorf("ten seconds over: %t, and the clock set by %v, it rests: %t", long, by, one)
			}
		}
	}
}

// set is a time as a clock says it that was set by whole seconds since the process began: the monotonic reading is as it was.
func set(t time.Time, by time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) += uint64(by/time.Second) << 30
	return t
}
