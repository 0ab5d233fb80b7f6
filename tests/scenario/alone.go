package scenario

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// test is what *testing.T has beside what testscript asks of it.
type test interface {
	Failed() bool
	Name() string
}

// keeps says whether a failure's lab stays: the first one's of a run by hand, all with KEEP=1, none with KEEP=0 or in CI.
func keeps(kept int, env func(string) string) bool {
	switch env("KEEP") {
	case "0":
		return false
	case "":
		return kept == 0 && env("CI") == ""
	}
	return true
}

// kept counts the labs that this process has kept. One is enough to look at, and each is a Docker host or three.
var kept atomic.Int32

// afterFailure says how to run a script that failed by itself, keeps its lab (keeps), and says how to remove it.
func (s *state) afterFailure(name string) string {
	dir, _ := os.Getwd()
	text := "alone: " + alone(dir, name)
	if s.lab == nil || s.opts.Kind != lab.Namespace {
		return text
	}
	if !keeps(int(kept.Load()), os.Getenv) {
		return text + "\nKEEP=1 in front of it leaves the lab of a failure as it is"
	}
	if err := s.lab.Keep(); err != nil {
		return fmt.Sprintf("%s\nthe lab is not kept: %v", text, err)
	}
	kept.Add(1)
	return text + "\nthe lab is kept; to remove it: go run ./tests/lab/cmd/lab clean " + s.lab.ID()
}

// alone is the command that runs one test of the package in dir, from the root of the source tree,
// with the settings that this run has.
func alone(dir, name string) string {
	pkg := "./tests"
	if base := filepath.Base(dir); base != "tests" {
		pkg += "/" + base
	}
	command := "go test " + pkg + " -run '^" + strings.ReplaceAll(name, "/", "$/^") + "$' -count=1 -v"
	flag.Visit(func(f *flag.Flag) {
		if !strings.HasPrefix(f.Name, "test.") {
			command += fmt.Sprintf(" -%s='%s'", f.Name, f.Value)
		}
	})
	return command
}
