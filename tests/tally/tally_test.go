package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

const stream = `{"Action":"start","Package":"a"}
{"Action":"output","Package":"a","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"a","Test":"TestGood","Output":"quiet\n"}
{"Action":"pass","Package":"a","Test":"TestGood","Elapsed":0.1}
{"Action":"output","Package":"a","Output":"PASS\n"}
{"Action":"output","Package":"a","Output":"ok  \ta\t0.1s\n"}
{"Action":"pass","Package":"a","Elapsed":0.1}
{"Action":"output","Package":"b","Test":"TestBad","Output":"the reason\n"}
{"Action":"output","Package":"b","Test":"TestBad/part","Output":"    x_test.go:609: ping\n        FAIL: a.txtar:7: no answer\n"}
{"Action":"fail","Package":"b","Test":"TestBad/part","Elapsed":0.1}
{"Action":"fail","Package":"b","Test":"TestBad","Elapsed":0.1}
{"Action":"output","Package":"b","Output":"FAIL\tb\t0.1s\n"}
{"Action":"fail","Package":"b","Elapsed":0.1}
{"ImportPath":"c","Action":"build-output","Output":"c.go:1: syntax error\n"}
{"ImportPath":"c","Action":"build-fail"}
{"Action":"output","Package":"c","Output":"FAIL\tc [build failed]\n"}
{"Action":"fail","Package":"c","Elapsed":0,"FailedBuild":"c"}
{"Action":"output","Package":"d","Output":"?   \td\t[no test files]\n"}
{"Action":"skip","Package":"d"}
`

func TestTally(t *testing.T) {
	var out strings.Builder
	c, err := tally(strings.NewReader(stream), &out, false)
	if err != nil {
		t.Fatal(err)
	}
	if c.passed != 1 || c.failed != 3 { // two tests, and the package that does not build
		t.Errorf("counted %v", c)
	}
	if want := []string{"b TestBad/part FAIL: a.txtar:7: no answer", "c"}; !slices.Equal(c.failures, want) {
		t.Errorf("failures are %q, want %q", c.failures, want)
	}
	want := "ok  \ta\t0.1s\n    x_test.go:609: ping\n        FAIL: a.txtar:7: no answer\nthe reason\nFAIL\tb\t0.1s\nc.go:1: syntax error\nFAIL\tc [build failed]\n"
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
}

func TestTallyNamesWhatPasses(t *testing.T) {
	var out strings.Builder
	if _, err := tally(strings.NewReader(stream), &out, true); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), "--- PASS: TestGood (0.10s)\nok") {
		t.Errorf("printed\n%s", out.String())
	}
}

func TestTallySaysWhatAScenarioCosts(t *testing.T) {
	const stream = `{"Action":"output","Package":"a","Test":"TestScenarios/names","Output":"    testscript.go:609: > host1 echo processors 1 s or so\n"}
{"Action":"output","Package":"a","Test":"TestScenarios/names","Output":"    run.go:62: processors 12.3 s\n"}
{"Action":"pass","Package":"a","Test":"TestScenarios/names","Elapsed":20}
`
	var out strings.Builder
	if _, err := tally(strings.NewReader(stream), &out, true); err != nil {
		t.Fatal(err)
	}
	if want := "--- PASS: TestScenarios/names (20.00s) processors 12.3 s\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

// What is skipped is named, and counted as nothing else.
func TestTallySaysWhatIsSkipped(t *testing.T) {
	const stream = `{"Action":"output","Package":"a","Test":"TestScenarios/names","Output":"    turns.go:122: left out: it is late\n"}
{"Action":"output","Package":"a","Test":"TestScenarios/names","Output":"--- SKIP: TestScenarios/names (0.00s)\n"}
{"Action":"skip","Package":"a","Test":"TestScenarios/names","Elapsed":0}
`
	var out strings.Builder
	c, err := tally(strings.NewReader(stream), &out, true)
	if err != nil {
		t.Fatal(err)
	}
	if want := "--- SKIP: a TestScenarios/names: left out: it is late\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	if want := "0 passed, 0 failed, 1 skipped"; c.String() != want {
		t.Errorf("counted %q, want %q", c, want)
	}
}

// What go test says where the time is over has no end of a test, and is of the one that said something last.
const timedOut = `{"Action":"output","Package":"e","Test":"TestSlow/part","Output":"> host2 docker rm -f site\n"}
{"Action":"output","Package":"e","Test":"TestSlow/part","Output":"panic: test timed out after 15m0s\n"}
{"Action":"output","Package":"e","Test":"TestSlow/part","Output":"\trunning tests:\n"}
{"Action":"output","Package":"e","Test":"TestSlow/part","Output":"\t\tTestSlow/part (9m59s)\n"}
{"Action":"output","Package":"e","Test":"TestSlow/part","Output":"\n"}
{"Action":"output","Package":"e","Test":"TestSlow/part","Output":"goroutine 7 [running]:\n"}
{"Action":"output","Package":"e","Output":"FAIL\te\t900.022s\n"}
{"Action":"fail","Package":"e","Elapsed":900.022}
`

func TestTallyTellsWhatDidNotEnd(t *testing.T) {
	var out strings.Builder
	c, err := tally(strings.NewReader(timedOut), &out, true)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"e TestSlow/part (9m59s) when the time was over"}; c.failed != 1 || !slices.Equal(c.failures, want) {
		t.Errorf("%d failed: %q, want %q", c.failed, c.failures, want)
	}
	for _, want := range []string{"> host2 docker rm -f site\n", "goroutine 7", "FAIL\te"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not printed:\n%s", want, out.String())
		}
	}
}

// TestOnceMore: few tests, each by itself, and nothing that is no test.
func TestOnceMore(t *testing.T) {
	c := counts{passed: 7, failed: 3, failures: []string{"m/a TestScenarios/one FAIL: a.txtar:7: no", "m/b TestTwo b_test.go:1: no"}}
	list := c.alone()
	if want := []failure{{"m/a", "TestScenarios/one", false}, {"m/b", "TestTwo", false}}; !slices.Equal(list, want) {
		t.Fatalf("once more are %v, want %v", list, want)
	}
	if got, want := list[0].pattern(), "^TestScenarios$/^one$"; got != want {
		t.Errorf("its pattern is %s, want %s", got, want)
	}
	if again := c.passedAgain(list); again.passed != 10 || again.failed != 0 || len(again.failures) != 0 || len(again.shaky) != 2 {
		t.Errorf("having passed alone they count as %+v", again)
	}
	if none := c.passedAgain(nil); none.failed != 3 {
		t.Errorf("without a second run they count as %+v", none)
	}
	for _, failures := range [][]string{
		{"m/a TestOne", "m/a TestTwo", "m/a TestThree", "m/a TestFour", "m/a TestFive", "m/a TestSix", "m/a TestSeven"}, // no accident
		{"m/a"}, // does not build
		{"m/a FuzzOne x: found"},
		{"m/a TestSlow" + timeOver},
	} {
		if list := (counts{failed: len(failures), failures: failures}).alone(); list != nil {
			t.Errorf("of %q once more are %v", failures, list)
		}
	}
}

// TestAgainRuns: a test that passes alone is shaky, one that fails stays failed.
func TestAgainRuns(t *testing.T) {
	const pkg = "github.com/grapevine-net/grapevine/tests/tally"
	var out strings.Builder
	c, err := again(t.Context(), &out, counts{passed: 1, failed: 1, failures: []string{pkg + " TestTally x"}}, time.Now())
	if err != nil || c.failed != 0 || c.passed != 2 || len(c.shaky) != 1 {
		t.Errorf("a test that passes: %+v, %v\n%s", c, err, out.String())
	}
	c, err = again(t.Context(), &out, counts{passed: 1, failed: 1, failures: []string{pkg + " TestThatIsNotThere x"}}, time.Now())
	if err != nil || c.failed != 1 {
		t.Errorf("a test that does not run: %+v, %v", c, err)
	}
}

// TestAgainHasNoTime: in CI, which ends a run that takes too long, a run that has taken long runs nothing once more.
func TestAgainHasNoTime(t *testing.T) {
	t.Setenv("CI", "1")
	var out strings.Builder
	failed := counts{passed: 1, failed: 1, failures: []string{"example.org/a TestTally x"}}
	c, err := again(t.Context(), &out, failed, time.Now().Add(-inCI))
	if err != nil || c.failed != 1 || !strings.Contains(out.String(), "not once more") {
		t.Errorf("%+v, %v\n%s", c, err, out.String())
	}
	began := time.Now()
	for _, at := range []struct {
		took time.Duration
		ci   bool
		want time.Duration
	}{
		{time.Hour, false, onceMore},
		{time.Minute, true, onceMore},
		{inCI - time.Minute, true, time.Minute},
	} {
		if got := timeFor(began, began.Add(at.took), at.ci); got != at.want {
			t.Errorf("after %v, CI %v, a test may take %v, want %v", at.took, at.ci, got, at.want)
		}
	}
}

// TestFuzzTestsTakeTurns: each is in one part, and those of a package in the same.
func TestFuzzTestsTakeTurns(t *testing.T) {
	t.Chdir("../..")
	list, err := fuzzTests()
	if err != nil || len(list) < 2*fuzzTurns {
		t.Fatalf("found %v: %v", list, err)
	}
	seen := map[fuzzTest]int{}
	for turn := range fuzzTurns {
		part := inTurn(list, turn)
		if len(part) == 0 {
			t.Errorf("part %d has nothing", turn)
		}
		for dir, tests := range part {
			for _, f := range tests {
				if seen[f]++; f.dir != dir {
					t.Errorf("%v is among those of %s", f, dir)
				}
			}
		}
	}
	for _, f := range list {
		if seen[f] != 1 {
			t.Errorf("%v is in %d parts", f, seen[f])
		}
	}
}
