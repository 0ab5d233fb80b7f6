package scenario

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// test is what *testing.T has beside what testscript asks of it.
type test interface {
	Failed() bool
	Name() string
}

// afterFailure says how to run a script that failed by itself, and, with KEEP=1, keeps its lab
// and says how to remove it.
func (s *state) afterFailure(name string) string {
	dir, _ := os.Getwd()
	text := "alone: " + alone(dir, name)
	if s.lab == nil || s.opts.Kind != lab.Namespace {
		return text
	}
	if os.Getenv("KEEP") == "" {
		return text + "\nKEEP=1 in front of it leaves the lab of a failure as it is"
	}
	if err := s.lab.Keep(); err != nil {
		return fmt.Sprintf("%s\nthe lab is not kept: %v", text, err)
	}
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
