package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// fewFailures is how many failed tests are run once more. More than these are no accident of
// what ran beside them.
const fewFailures = 6

// failure is a failed test, by its package and its name with those of the tests around it.
type failure struct {
	pkg, test string
	raced     bool // with the race detector
}

// alone are the failed tests, if they are few and each can be run by itself: what does not
// build, runs out of time, is a race, or a finding of a fuzz test, is no accident either.
func (c counts) alone() (list []failure) {
	if len(c.failures) > fewFailures {
		return nil
	}
	for _, line := range c.failures {
		line, raced := strings.CutSuffix(line, withDetector)
		f := strings.Fields(line)
		if strings.HasSuffix(line, raceFound) || len(f) < 2 || !strings.HasPrefix(f[1], "Test") || strings.HasSuffix(line, timeOver) {
			return nil
		}
		list = append(list, failure{f[0], f[1], raced})
	}
	return list
}

// pattern is what `go test -run` takes for one test.
func (f failure) pattern() string {
	parts := strings.Split(f.test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// module is the directory of the module of its own that the package is of, if it is of one.
func (f failure) module() string {
	for _, t := range tiers {
		if t.module != "" && strings.Contains(f.pkg+"/", "/"+t.module+"/") {
			return t.module
		}
	}
	return ""
}

const (
	// onceMore is how long a test may take that is run once more.
	onceMore = 5 * time.Minute
	// inCI is after how long a run in CI is to be over. It should take half of that and less; on a machine that is half as fast
	// it takes twice as long, and it is there that tests fail because of what runs beside them.
	inCI = time.Hour
	// soon is too little for any scenario.
	soon = 20 * time.Second
)

// timeFor is how long a test may take that is run once more in a run that began then.
func timeFor(began, now time.Time, ci bool) time.Duration {
	if !ci {
		return onceMore
	}
	return min(onceMore, began.Add(inCI).Sub(now))
}

// again runs the few tests that failed once more, with nothing beside them, if the run that began then has time for it. If all of them pass
// now, they count as passed, and are named as shaky: who reads on finds what they said at first.
func again(ctx context.Context, out io.Writer, total counts, began time.Time) (counts, error) {
	list := total.alone()
	for _, f := range list {
		left := timeFor(began, time.Now(), os.Getenv("CI") != "")
		if left < soon {
			fmt.Fprintf(out, "=== not once more, since this run would take too long: %s %s\n", f.pkg, f.test)
			return total, nil
		}
		fmt.Fprintf(out, "=== once more, alone: %s %s\n", f.pkg, f.test)
		args := []string{"test", "-json", "-count=1", "-timeout", left.String(), "-run", f.pattern(), f.pkg}
		if f.raced {
			args = slices.Insert(args, 1, "-race")
		}
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = f.module()
		if f.raced {
			cmd.Env = withC()
		}
		c, err := tier{verbose: true}.events(cmd, out)
		total.cpu += c.cpu
		if err != nil {
			return total, err
		}
		if c.failed > 0 || c.passed == 0 {
			return total, nil
		}
	}
	return total.passedAgain(list), nil
}

// passedAgain is what is counted when all that failed has passed alone.
func (c counts) passedAgain(list []failure) counts {
	if len(list) == 0 {
		return c
	}
	var shaky []string
	for _, f := range list {
		shaky = append(shaky, "shaky: "+f.pkg+" "+f.test+" failed beside others and passes alone; above is what it said")
	}
	return counts{passed: c.passed + c.failed, skipped: c.skipped, shaky: shaky, cpu: c.cpu}
}
