package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// counts are tests, subtests included. A package that fails without a failed test
// (it does not build, panics, or runs out of time) counts as one that failed.
type counts struct {
	passed, failed, skipped int
	// failures has a line for each that failed, but not for tests whose subtests did:
	// package, name and why.
	failures []string
	// shaky has a line for each that failed at first.
	shaky []string
	// cpu is the processors' time that they took: of all processes that somebody waited for.
	cpu time.Duration
	// gaveUp: the race detector broke, and not what it looked at.
	gaveUp bool
}

// raceFound is how the line of a test ends in which two goroutines met: that it does not come to it the next time says nothing.
const raceFound = "race detected"

// timeOver is how the line of a test ends that was ended.
const timeOver = " when the time was over"

func (c *counts) add(d counts) {
	c.passed += d.passed
	c.failed += d.failed
	c.skipped += d.skipped
	c.failures = append(c.failures, d.failures...)
	c.cpu += d.cpu
}

func (c counts) String() string {
	said := fmt.Sprintf("%d passed, %d failed", c.passed, c.failed)
	if c.skipped > 0 {
		said += fmt.Sprintf(", %d skipped", c.skipped)
	}
	return said
}

// event is a line of `go test -json` (cmd/test2json); ImportPath is that of the
// build events.
type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
}

// tally reads events and prints those that people want to see.
func tally(events io.Reader, out io.Writer, verbose bool) (counts, error) {
	var c counts
	said := map[[2]string]*strings.Builder{}
	broken := map[string]bool{} // packages with a failed test
	in := bufio.NewReader(events)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				fmt.Fprintf(out, "%s", line) // not of test2json: a message of the go command
			} else {
				c.see(e, out, verbose, said, broken)
			}
		}
		if err == io.EOF {
			return c, nil
		}
		if err != nil {
			return c, fmt.Errorf("read what go test says: %w", err)
		}
	}
}

func (c *counts) see(e event, out io.Writer, verbose bool, said map[[2]string]*strings.Builder, broken map[string]bool) {
	key := [2]string{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(out, e.Output)
	case "output":
		if strings.HasPrefix(e.Output, "=== ") {
			return // RUN, PAUSE and CONT are of no use afterwards
		}
		if said[key] == nil {
			said[key] = &strings.Builder{}
		}
		said[key].WriteString(e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			c.unfinished(e.Package, out, said, broken)
		}
		c.end(e, out, verbose, said[key], broken)
		delete(said, key)
	}
}

// unfinished prints what tests have said that had not ended when their package did: it ran
// out of time, or a test panicked or called exit, and what that said is among it.
func (c *counts) unfinished(pkg string, out io.Writer, said map[[2]string]*strings.Builder, broken map[string]bool) {
	for _, key := range slices.SortedFunc(maps.Keys(said), func(a, b [2]string) int { return strings.Compare(a[1], b[1]) }) {
		if key[0] != pkg || key[1] == "" {
			continue
		}
		text := said[key].String()
		fmt.Fprintf(out, "unfinished: %s\n%s", key[1], text)
		c.gaveUp = c.gaveUp || detectorGaveUp(text)
		for _, name := range stillRunning(text) {
			c.failed++
			broken[pkg] = true
			c.failures = append(c.failures, pkg+" "+name+timeOver)
		}
		delete(said, key)
	}
}

// stillRunning are the tests that package testing names when their time is over.
func stillRunning(text string) (names []string) {
	_, list, _ := strings.Cut(text, "running tests:\n")
	for line := range strings.Lines(list) {
		if !strings.HasPrefix(line, "\t\t") {
			break
		}
		names = append(names, strings.TrimSpace(line))
	}
	return names
}

// end is the end of a test, or with no name of a package.
func (c *counts) end(e event, out io.Writer, verbose bool, said *strings.Builder, broken map[string]bool) {
	text := ""
	if said != nil {
		text = said.String()
	}
	switch {
	case e.Test == "" && e.Action == "fail":
		fmt.Fprint(out, text)
		if !broken[e.Package] {
			c.failed++
			c.failures = append(c.failures, e.Package)
		}
	case e.Test == "":
		fmt.Fprint(out, packageLine(text))
	case e.Action == "fail":
		c.failed++
		broken[e.Package] = true
		name := e.Package + " " + e.Test
		if !slices.ContainsFunc(c.failures, func(f string) bool { return strings.HasPrefix(f, name+"/") }) {
			c.failures = append(c.failures, strings.TrimSpace(name+" "+reason(text)))
		}
		fmt.Fprint(out, text)
	case e.Action == "skip":
		c.skipped++
		fmt.Fprintf(out, "--- SKIP: %s %s%s\n", e.Package, e.Test, why(text))
	case e.Action == "pass":
		c.passed++
		if verbose {
			fmt.Fprintf(out, "--- PASS: %s (%.2fs)%s\n", e.Test, e.Elapsed, cost(text))
		}
	}
}

var (
	scenarioFails = regexp.MustCompile(`(?m)^ *FAIL: .*$`)
	testSays      = regexp.MustCompile(`(?m)^ *[a-z0-9_]+_test\.go:\d+: .*$`)
	anySays       = regexp.MustCompile(`(?m)^ *[a-z0-9_]+\.go:\d+: .*$`)
)

// reason is the line of a failed test's output that most probably says why: the failed
// line of a scenario, or else what a test said first.
func reason(text string) string {
	const long = 300
	if strings.Contains(text, "race detected during execution of test") {
		return raceFound
	}
	why := scenarioFails.FindString(text)
	if why == "" {
		why = testSays.FindString(text)
	}
	if why = strings.TrimSpace(why); len(why) > long {
		why = why[:long/2] + " ... " + why[len(why)-long/2:]
	}
	return why
}

// why is what a test said that was skipped.
func why(text string) string {
	_, said, found := strings.Cut(strings.TrimSpace(anySays.FindString(text)), ": ")
	if !found {
		return ""
	}
	return ": " + said
}

// costs is how a scenario says what the processors did for its lab.
var costs = regexp.MustCompile(`(?m)^ *(?:[a-z]+\.go:\d+: )?(processors [0-9.]+ s)$`)

// cost is what of that stands behind a test that passed.
func cost(text string) string {
	if m := costs.FindStringSubmatch(text); m != nil {
		return " " + m[1]
	}
	return ""
}

// packageLine is the last line of a package that passed: "ok  \tpath\t0.1s". One
// without test files says nothing worth a line.
func packageLine(text string) string {
	lines := strings.SplitAfter(strings.TrimRight(text, "\n")+"\n", "\n")
	last := lines[len(lines)-2]
	if strings.Contains(last, "[no test files]") {
		return ""
	}
	return last
}
