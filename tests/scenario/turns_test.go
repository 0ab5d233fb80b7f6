package scenario

import (
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// On a crowded machine one script runs at a time, and never none; another one where the processors have time all the same.
func TestTurnsOnACrowdedMachine(t *testing.T) {
	crowded := true
	p := &turns{all: 2, free: 2, crowded: func() bool { return crowded }, spare: func() bool { return false }}
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
	if p.spare = func() bool { return true }; !p.take() {
		t.Error("the crowd has gone, and the next script waits till it is forgotten")
	}
}

// Two scripts run though the processors are busy, a third one begins where they are not.
func TestTurnsOfBusyProcessors(t *testing.T) {
	spare := false
	p := &turns{all: 4, free: 4, crowded: func() bool { return false }, spare: func() bool { return spare }}
	for range always {
		if !p.take() {
			t.Fatal("few run, and another script does not begin")
		}
	}
	if p.take() {
		t.Error("one more script begins on busy processors")
	}
	spare = true
	for range 2 {
		if !p.take() {
			t.Error("the processors have time, and another script does not begin")
		}
	}
	if p.take() {
		t.Error("a fifth script begins, where four may run")
	}
}

// The processors are looked at for a while from the last yes on, and time that another machine took of them is not theirs.
func TestSpare(t *testing.T) {
	room, now, stat := true, time.Unix(1000, 0), "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 1"
	s := &spare{now: func() time.Time { return now }, read: func() (ticks, error) { return readTicks(stat) }, room: func() bool { return room }}
	for _, at := range []struct {
		after time.Duration
		stat  string
		want  bool
		why   string
	}{
		{0, stat, false, "nothing is known yet"},
		{time.Second, "cpu 0 0 0 100 0 0 0 0 0 0", false, "it was looked at for a moment"},
		{spareFor, "cpu 300 0 0 500 0 0 0 0 0 0", true, "more than half was left"},
		{spareFor, "cpu 700 0 380 520 0 0 0 0 0 0", false, "a fortieth was left"},
		{spareFor, "cpu 700 0 380 520 0 0 0 800 0 0", false, "all of it was another machine's"},
		{spareFor, "cpu 700 0 380 520 400 0 0 1200 0 0", true, "half was waited for the disk"},
		{spareFor, "intr 7", false, "that is no such line"},
	} {
		now, stat = now.Add(at.after), at.stat
		if got := s.enough(); got != at.want {
			t.Errorf("%s, and another script begins: %v", at.why, got)
		}
	}
	now, stat, room = now.Add(spareFor), "cpu 700 0 380 520 9000 0 0 1200 0 0", false
	if s.enough() {
		t.Error("the memory is full, and another script begins")
	}
	for meminfo, want := range map[string]uint64{"MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable:   24117248 kB\n": 24117248, "MemFree: 9 kB\n": 0} {
		if got := available(meminfo); got != want {
			t.Errorf("of %q %d KiB are available, want %d", meminfo, got, want)
		}
	}
}

// What idles begins first, then what takes long, then the others in their order.
func TestLongFirst(t *testing.T) {
	read := func(file string) ([]byte, error) {
		if file == "x/idles.txtar" {
			return []byte("hosts 1\nidle sleep 1s\n"), nil
		}
		return []byte("hosts 1\n"), nil
	}
	files := []string{"x/a.txtar", "x/" + long[1] + ".txtar", "x/idles.txtar", "x/" + long[0] + ".txtar", "x/b.txtar"}
	want := []string{files[2], files[3], files[1], files[0], files[4]}
	if got := longFirst(files, read); !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v", got, want)
	}
}

// What is named as long is there.
func TestLongAreScripts(t *testing.T) {
	for _, name := range long {
		found, err := filepath.Glob("../*/" + name + ".txtar")
		if err != nil || len(found) == 0 {
			t.Errorf("no script is called %s: %v", name, err)
		}
	}
}

// Of scripts that have a time those are skipped whose turn comes later, and nothing else.
func TestLateScriptsAreSkipped(t *testing.T) {
	now := time.Now()
	all := &suite{late: map[string]time.Time{"late": now.Add(-time.Second), "early": now.Add(time.Hour)}}
	for name, want := range map[string]bool{"late": true, "always": false, "early": false} {
		if got := all.tooLate(name, now); got != want {
			t.Errorf("%s is too late: %v, want %v", name, got, want)
		}
	}
}
