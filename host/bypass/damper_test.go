package bypass

import (
	"testing"
	"time"
)

// simulate is an hour in which something changes once a period. Whoever watches reads the rules when it has been calm. It returns
// how often they are read, and for how much of the time they are relied on.
func simulate(period, cost time.Duration) (reads int, relied float64) {
	const hour, step = time.Hour, 50 * time.Millisecond
	var d damper
	var good time.Duration
	read := false
	begin := time.Unix(1e9, 0)
	for at := step; at <= hour; at += step {
		now := begin.Add(at)
		if at%period == 0 {
			d.heard(now)
			read = false
		}
		if !read && d.rest(now) == 0 {
			d.read(cost)
			read = true
			reads++
		}
		if read {
			good += step
		}
	}
	return reads, float64(good) / float64(hour)
}

// What changes seldom costs a moment each time; what changes all the time is left alone.
func TestDamper(t *testing.T) {
	for _, c := range []struct {
		period, cost time.Duration
		most         int // reads in an hour
		least        float64
	}{
		{time.Hour, time.Millisecond, 2, 0.99},
		{10 * time.Second, 4 * time.Millisecond, 361, 0.96},
		{5 * time.Second, 4 * time.Millisecond, 721, 0.93},
		{2 * time.Second, 4 * time.Millisecond, 1801, 0.8},
		{time.Second, 4 * time.Millisecond, 10, 0},   // a container with a published port each second
		{time.Second, 300 * time.Millisecond, 10, 0}, // the same, with a hundred thousand rules
		{10 * time.Second, 200 * time.Millisecond, 361, 0.5},
		{30 * time.Second, time.Second, 121, 0.3}, // sets of half a million addresses
		{10 * time.Second, time.Second, 10, 0},
		{500 * time.Millisecond, time.Millisecond, 10, 0},
		{100 * time.Millisecond, time.Millisecond, 1, 0},
	} {
		reads, relied := simulate(c.period, c.cost)
		t.Logf("a change each %s: read %d times, relied on for %.1f%%", c.period, reads, 100*relied)
		if reads > c.most || relied < c.least {
			t.Errorf("a change each %s, and %s to read: read %d times in an hour, want %d; relied on for %.3f, want %.3f", c.period, c.cost, reads, c.most, relied, c.least)
		}
	}
}

// When it is over, packets are direct again soon.
func TestDamperEnds(t *testing.T) {
	var d damper
	now := time.Unix(1e9, 0)
	for range 1000 {
		now = now.Add(time.Second)
		d.heard(now)
		if d.rest(now.Add(999*time.Millisecond)) == 0 {
			d.read(time.Second)
		}
	}
	if rest := d.rest(now); rest > dear*time.Second {
		t.Errorf("it has to be calm for %s", rest)
	}
	now = now.Add(time.Minute)
	d.read(time.Millisecond)
	d.heard(now)
	if rest := d.rest(now); rest != leastCalm {
		t.Errorf("after a minute without a change it has to be calm for %s, want %s", rest, leastCalm)
	}
}
