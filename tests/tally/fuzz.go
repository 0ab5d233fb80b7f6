package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// fuzzTest is a fuzz test in the package of a directory.
type fuzzTest struct{ dir, name string }

var fuzzFunc = regexp.MustCompile(`(?m)^func (Fuzz[A-Za-z0-9_]*)\(f \*testing\.F\)`)

// fuzzTests finds all fuzz tests below the working directory.
func fuzzTests() (list []fuzzTest, err error) {
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range fuzzFunc.FindAllSubmatch(source, -1) {
			list = append(list, fuzzTest{"./" + filepath.Dir(path), string(m[1])})
		}
		return nil
	})
	return list, err
}

// inputs are how many each fuzz test tries, besides its corpus: a second's work for most.
// A number and not a time, since at the end of its time package testing may take the end
// of a worker for a failure.
const inputs = "1000x"

// fuzz runs each fuzz test for a moment, without the instruments that tell where an input
// leads (`make fuzz` has them; to build them takes longer than all of this). One that
// finds something leaves it in its package's testdata, to be kept with what mends it.
func (t tier) fuzz(ctx context.Context, out io.Writer) (total counts, err error) {
	list, err := fuzzTests()
	if err != nil {
		return total, fmt.Errorf("look for fuzz tests: %w", err)
	}
	cache, err := os.MkdirTemp("", "fuzz")
	if err != nil {
		return total, err
	}
	defer func() { _ = os.RemoveAll(cache) }()
	for _, f := range list {
		c, err := t.goTest(ctx, out, []string{
			"-vet", "off", "-run", "^$", f.dir, "-args", "-test.fuzz", "^" + f.name + "$",
			"-test.fuzztime", inputs, "-test.fuzzminimizetime", "100x", "-test.fuzzcachedir", cache,
		})
		if err == nil && c.passed+c.failed == 0 {
			err = fmt.Errorf("%s of %s did not run", f.name, f.dir)
		}
		if err != nil {
			return total, err
		}
		total.add(c)
	}
	return total, nil
}
