package scenario

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// spare tells whether the processors have time left for one more script, by what they did since the last one began, and
// the memory room.
type spare struct {
	mu    sync.Mutex
	since time.Time // of what they had done then
	then  ticks
	now   func() time.Time
	read  func() (ticks, error)
	room  func() bool // in memory
}

// ticks are what the processors have had since the machine's boot, and what of it they had nothing to do.
type ticks struct{ all, idle uint64 }

const (
	// spareFor is how long they are looked at: a script is not what it is in its first seconds, when its hosts boot.
	spareFor = 4 * time.Second
	// spareShare is which part of their time is to be left, one in so many.
	spareShare = 7
	// spareMemory in KiB is what a script of three hosts takes at most, and as much again.
	spareMemory = 3 << 20
)

func newSpare() *spare {
	return &spare{now: time.Now, read: func() (ticks, error) {
		text, err := os.ReadFile("/proc/stat")
		if err != nil {
			return ticks{}, err
		}
		return readTicks(string(text))
	}, room: func() bool {
		text, err := os.ReadFile("/proc/meminfo")
		return err == nil && available(string(text)) >= spareMemory
	}}
}

// available is what of the memory programs may have, by /proc/meminfo (proc(5)), in KiB; 0 if that does not say.
func available(meminfo string) (kib uint64) {
	_, line, _ := strings.Cut(meminfo, "\nMemAvailable:")
	_, _ = fmt.Sscan(line, &kib)
	return kib
}

// enough is asked again and again. It says yes once in spareFor at most, and who does not know says no.
func (s *spare) enough() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if now.Sub(s.since) < spareFor {
		return false
	}
	have, err := s.read()
	if err != nil {
		return false
	}
	known, all, idle := !s.since.IsZero(), have.all-s.then.all, have.idle-s.then.idle
	s.since, s.then = now, have
	return known && idle*spareShare >= all && s.room()
}

// readTicks reads the first line of /proc/stat (proc(5)): user, nice, system, idle, iowait, irq, softirq, steal, and
// guest and guest_nice, which are in user and nice as well.
func readTicks(stat string) (t ticks, err error) {
	line, _, _ := strings.Cut(stat, "\n")
	name, rest, _ := strings.Cut(line, " ")
	fields := strings.Fields(rest)
	if name != "cpu" || len(fields) < 8 {
		return t, fmt.Errorf("the first line of /proc/stat is %q", line)
	}
	for i, f := range fields[:8] {
		var n uint64
		if _, err := fmt.Sscan(f, &n); err != nil {
			return t, fmt.Errorf("the first line of /proc/stat is %q: %w", line, err)
		}
		t.all += n
		if i == 3 || i == 4 {
			t.idle += n
		}
	}
	return t, nil
}
