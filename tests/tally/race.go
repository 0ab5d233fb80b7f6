package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/tests/turns"
)

// raced are the packages in which goroutines meet most, in parts that take turns by the hour: a run has one part. To
// compile all of Go's library once more for the race detector is most of what one costs where nothing is cached, so
// that no part is much dearer than another. All packages are for `make race`.
var raced = [][]string{
	{"./gossip"},
	{"./ipam"},
	{"./dns"},
	{"./replica", "./egress/hold", "./pulse", "./reach"},
	{"./driver/ports", "./host/proxy", "./host/portreserve"},
	{"./membership"},
	{"./driver"},
	{"./overlay/plane", "./host/ovs"},
}

// race runs the tests of the part whose turn it is with the race detector, without those that take long.
func (t tier) race(ctx context.Context, out io.Writer) (counts, error) {
	turn := turns.Of(len(raced))
	fmt.Fprintf(out, "race: part %d of %d, which take turns by the hour (make race: all packages): %s\n", turn+1, len(raced), strings.Join(raced[turn], " "))
	args := append([]string{"test", "-json", "-count=1", "-race", "-short", "-vet", "off", "-ldflags", "-w", "-timeout", hangs.String()}, raced[turn]...)
	var spent time.Duration
	for try := 1; ; try++ {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Env = withC()
		c, err := t.events(cmd, out)
		spent += c.cpu
		if err == nil && c.gaveUp && try < tries && !slices.ContainsFunc(c.failures, isRace) {
			fmt.Fprintf(out, "=== the race detector broke: all of it again\n")
			continue
		}
		c.cpu = spent
		if c.gaveUp && len(c.failures) == c.failed && !slices.ContainsFunc(c.failures, func(line string) bool { return strings.Contains(line, " ") }) {
			// No test failed, and no race was found: what the detector did not get to is named, and counted as left out.
			fmt.Fprintf(out, "--- SKIP: %s with the race detector, which broke each time (golang/go 78156)\n", strings.Join(c.failures, " "))
			c.skipped, c.failed, c.failures = c.skipped+c.failed, 0, nil
		}
		for i := range c.failures {
			c.failures[i] += withDetector
		}
		return c, err
	}
}

// tries is how often a part begins of which the detector breaks.
const tries = 2

func isRace(line string) bool { return strings.HasSuffix(line, raceFound) }

// detectorGaveUp reports whether a test ended by a fault of the race detector, or of Go's runtime beside it, where goroutines of a bubble
// (testing/synctest) wait for timers: Go 1.26, golang/go 78156. One of ours is a panic, or a race.
func detectorGaveUp(text string) bool {
	return strings.Contains(text, "ThreadSanitizer: CHECK failed") || strings.Contains(text, "SIGSEGV: segmentation violation\nPC=")
}

// withDetector is how the line of a failure ends that the tier race had.
const withDetector = " (with the race detector)"

// withC is the environment for the race detector, which is written in C.
func withC() []string { return append(os.Environ(), "CGO_ENABLED=1") }
