package wireguard

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// longAgo is a variable of the environment: with it a device's process has the clock of the year 2000.
const longAgo = "GRAPEVINE_TEST_LONG_AGO"

var longAgoArgs []string

// TestServeLongAgo is no test by itself: it is the process of a device that TestClockSetBack begins. Time stands still
// there, since the process always waits for the network.
func TestServeLongAgo(t *testing.T) {
	if longAgoArgs == nil {
		t.Skip("TestClockSetBack begins it")
	}
	synctest.Test(t, func(t *testing.T) {
		if err := Serve(t.Context(), longAgoArgs); err != nil {
			t.Error(err)
		}
	})
}

// TestClockSetBack: a host whose clock was ahead, and is set right, is heard again, though WireGuard takes no handshake
// that is older than the last one.
func TestClockSetBack(t *testing.T) {
	a, b := newEnd(t, 1), newEnd(t, 2)
	linktest.Wire(t, "eth0", a.NS, b.NS, []string{"192.0.2.1/24"}, []string{"192.0.2.2/24"})
	kind, _ := a.ensure(b)
	if kind != Userspace {
		t.Skip("the kernel's WireGuard has the machine's clock")
	}
	b.ensure(a)
	if !b.says(a) {
		t.Fatal("a host is not heard")
	}
	again := func() {
		t.Helper()
		b.Do(func() {
			if _, err := b.device.Remove(); err != nil {
				t.Fatal(err)
			}
		})
		b.ensure(a)
	}
	t.Setenv(longAgo, "1")
	again()
	if !b.silent(a) {
		t.Fatal("a handshake of before the last one is taken: this test shows nothing")
	}
	a.ensure(b)
	for range 2 {
		a.later += lost
		a.ensure(b)
	}
	again()
	if !b.says(a) {
		t.Error("a host whose clock was set back is not heard any more")
	}
}

func TestEar(t *testing.T) {
	now := time.Unix(1e9, 0) // of the monotonic clock, as it were
	var e Ear
	listen := func(after time.Duration, handshakes ...time.Time) (silent []time.Duration, lost []bool) {
		now = now.Add(after)
		s := State{}
		for i, h := range handshakes {
			s.Peers = append(s.Peers, Peer{Key: Key{byte(i)}, Handshake: h})
		}
		e.Listen(&s, now)
		for _, p := range s.Peers {
			silent, lost = append(silent, p.Silent), append(lost, p.Lost)
		}
		return silent, lost
	}
	never, before, year := time.Time{}, now.Add(-time.Minute), 365*24*time.Hour
	ahead := now.Add(year)
	for _, step := range []struct {
		when       string
		after      time.Duration
		handshakes []time.Time
		silent     []time.Duration
		lost       []bool
	}{
		{"at first the clock says it", 0, []time.Time{never, before, ahead}, []time.Duration{fresh, time.Minute, 0}, []bool{false, false, false}},
		{"nothing new", 30 * time.Second, []time.Time{never, before, ahead}, []time.Duration{fresh + 30*time.Second, 90 * time.Second, 30 * time.Second}, []bool{false, false, false}},
		{"whose clock was set back is heard by it", 30 * time.Second, []time.Time{never, before, before}, []time.Duration{fresh + time.Minute, 2 * time.Minute, 0}, []bool{true, false, false}},
		{"once for each time", 0, []time.Time{never, before, before}, []time.Duration{fresh + time.Minute, 2 * time.Minute, 0}, []bool{false, false, false}},
		{"silent for too long", 2 * time.Minute, []time.Time{never, before, before}, []time.Duration{fresh + 3*time.Minute, 4 * time.Minute, 2 * time.Minute}, []bool{false, true, false}},
		{"forgotten, and not heard since", 2 * time.Minute, []time.Time{ahead, never, before}, []time.Duration{0, 6 * time.Minute, 4 * time.Minute}, []bool{false, false, true}},
	} {
		silent, lost := listen(step.after, step.handshakes...)
		if !reflect.DeepEqual(silent, step.silent) || !reflect.DeepEqual(lost, step.lost) {
			t.Errorf("%s: %v, %v, want %v, %v", step.when, silent, lost, step.silent, step.lost)
		}
	}
}
