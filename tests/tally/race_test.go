package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestRaced: the packages that take turns with the race detector are there, and have tests.
func TestRaced(t *testing.T) {
	seen := map[string]bool{}
	for _, part := range raced {
		for _, dir := range part {
			tests, _ := filepath.Glob(filepath.Join("../..", dir, "*_test.go")) // the pattern is right
			if _, err := os.Stat(filepath.Join("../..", dir)); err != nil || len(tests) == 0 {
				t.Errorf("%s has no tests: %v", dir, err)
			}
			if seen[dir] {
				t.Errorf("%s is in two parts", dir)
			}
			seen[dir] = true
		}
	}
}

// TestRaceIsNoAccident: what the race detector found is not run once more; what failed beside it is, with the detector.
func TestRaceIsNoAccident(t *testing.T) {
	const found = `{"Action":"output","Package":"a","Test":"TestA","Output":"    testing.go:1712: race detected during execution of test\n"}
{"Action":"fail","Package":"a","Test":"TestA"}
{"Action":"fail","Package":"a"}
`
	c, err := tally(strings.NewReader(found), io.Discard, false)
	if err != nil || len(c.failures) != 1 {
		t.Fatal(c.failures, err)
	}
	if list := (counts{failures: []string{c.failures[0] + withDetector}}).alone(); list != nil {
		t.Errorf("a race is run once more: %v", list)
	}
	want := []failure{{"a", "TestB", true}, {"b", "TestC", false}}
	if list := (counts{failures: []string{"a TestB it is late" + withDetector, "b TestC"}}).alone(); !slices.Equal(list, want) {
		t.Errorf("run once more: %v, want %v", list, want)
	}
}

// TestDetectorGaveUp: the detector's own faults are told from what it found, and from tests that fail.
func TestDetectorGaveUp(t *testing.T) {
	for said, want := range map[string]bool{
		`ThreadSanitizer: CHECK failed: tsan_rtl.cpp:346 \"((exiting || thr->fast_state.epoch() == kEpochLast)) != (0)\" (0x0, 0x0) (tid=1)\n`: true,
		`SIGSEGV: segmentation violation\nPC=0x41c729 m=6 sigcode=1 addr=0x0\n`:                                                                true,
		`panic: runtime error: invalid memory address or nil pointer dereference\n[signal SIGSEGV: segmentation violation code=0x1]\n`:         false,
		`WARNING: DATA RACE\n`: false,
	} {
		c, err := tally(strings.NewReader(`{"Action":"output","Package":"a","Test":"TestA","Output":"`+said+`"}
{"Action":"output","Package":"a","Output":"FAIL\ta\t1.6s\n"}
{"Action":"fail","Package":"a"}
`), io.Discard, false)
		if err != nil || c.gaveUp != want || c.failed != 1 {
			t.Errorf("%q: %+v, %v", said, c, err)
		}
	}
}
