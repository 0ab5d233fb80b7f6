package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
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

const (
	// fuzzFor is how long each fuzz test tries new inputs, after its corpus: those of the code
	// (f.Add) and of its package's testdata/fuzz.
	fuzzFor = time.Second
	// fuzzAtOnce fuzz tests run beside each other, each with one worker.
	fuzzAtOnce = 2
)

// fuzz runs each fuzz test for a moment, with the instruments that tell where an input leads. One
// that finds something leaves it in its package's testdata, to be kept with what mends it.
func (t tier) fuzz(ctx context.Context, out io.Writer) (total counts, err error) {
	list, err := fuzzTests()
	if err != nil {
		return total, fmt.Errorf("look for fuzz tests: %w", err)
	}
	tmp, err := os.MkdirTemp("", "fuzz")
	if err != nil {
		return total, err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	byDir := map[string][]fuzzTest{}
	for _, f := range list {
		byDir[f.dir] = append(byDir[f.dir], f)
	}
	var mu sync.Mutex // covers out and total
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.SetLimit(fuzzAtOnce)
	for dir, tests := range byDir {
		tasks.Go(func() error {
			program := filepath.Join(tmp, strings.ReplaceAll(dir, "/", "_"))
			said, cpu, err := t.buildFuzz(ctx, dir, program)
			mu.Lock()
			total.cpu += cpu
			mu.Unlock()
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				fmt.Fprintf(out, "%sFAIL\t%s [build failed]\n", said, dir)
				total.add(counts{failed: 1, failures: []string{dir}})
				return ctx.Err()
			}
			for _, f := range tests {
				c, said, err := t.fuzzOne(ctx, f, program)
				mu.Lock()
				total.add(c)
				_, _ = out.Write(said)
				mu.Unlock()
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = tasks.Wait()
	return total, err
}

// buildFuzz makes the test program of a package with the instruments, once for all its fuzz tests:
// to link it takes longer than to fuzz.
func (t tier) buildFuzz(ctx context.Context, dir, program string) (said []byte, cpu time.Duration, err error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet", "off", "-ldflags", "-w", "-fuzz", "Fuzz", "-o", program, dir)
	t.meter.join(cmd)
	said, err = cmd.CombinedOutput()
	return said, spent(cmd), err
}

// record keeps what is written to it: by a program on its standard error, and by who reads the
// rest of it meanwhile.
type record struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.Write(b)
}

// fuzzOne runs a fuzz test of a program of buildFuzz, once more if package testing took the end of
// its time for a failure, which it may.
func (t tier) fuzzOne(ctx context.Context, f fuzzTest, program string) (c counts, said []byte, err error) {
	cache, err := os.MkdirTemp(filepath.Dir(program), f.name) // others have fuzz tests of that name
	if err != nil {
		return c, nil, err
	}
	var before time.Duration
	for range 2 {
		cmd := exec.CommandContext(ctx, "go", "tool", "test2json", "-t", "-p", f.dir, program,
			"-test.v=test2json", "-test.paniconexit0", "-test.timeout", (3 * t.budget).String(), "-test.run", "^$", "-test.fuzz", "^"+f.name+"$",
			"-test.fuzztime", fuzzFor.String(), "-test.fuzzminimizetime", "100x", "-test.parallel", "1", "-test.fuzzcachedir", cache)
		cmd.Dir = f.dir
		var out record
		c, err = t.events(cmd, &out)
		c.cpu += before
		before = c.cpu
		said = out.buf.Bytes()
		if c.failed == 0 || !bytes.Contains(said, []byte("context deadline exceeded")) || bytes.Contains(said, []byte("Failing input")) {
			break
		}
	}
	if err == nil && c.passed+c.failed == 0 {
		err = fmt.Errorf("%s of %s did not run", f.name, f.dir)
	}
	return c, said, err
}
