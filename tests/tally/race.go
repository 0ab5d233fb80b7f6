package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

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
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = withC()
	c, err := t.events(cmd, out)
	for i := range c.failures {
		c.failures[i] += withDetector
	}
	return c, err
}

// withDetector is how the line of a failure ends that the tier race had.
const withDetector = " (with the race detector)"

// withC is the environment for the race detector, which is written in C.
func withC() []string { return append(os.Environ(), "CGO_ENABLED=1") }
