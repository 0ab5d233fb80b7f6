package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/tests/turns"
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
	// fuzzTurns is in how many parts the packages with fuzz tests take turns, one each hour: a run has one part.
	// All of them, with the instruments that tell where an input leads, are for `make fuzz`: to compile everything once
	// more for the instruments takes longer than to fuzz. Each run has all corpora, in the tier unit.
	fuzzTurns = 3
)

// inTurn are the fuzz tests of the part whose turn it is, by their directories, each directory in one part.
func inTurn(list []fuzzTest, turn int) map[string][]fuzzTest {
	byDir := map[string][]fuzzTest{}
	for _, f := range list {
		byDir[f.dir] = append(byDir[f.dir], f)
	}
	some := map[string][]fuzzTest{}
	for _, dir := range turns.Part(slices.Sorted(maps.Keys(byDir)), fuzzTurns, turn) {
		some[dir] = byDir[dir]
	}
	return some
}

// fuzz runs the fuzz tests whose turn it is, each for a moment. One that finds something leaves it in its package's
// testdata, to be kept with what mends it.
func (t tier) fuzz(ctx context.Context, out io.Writer) (total counts, err error) {
	list, err := fuzzTests()
	if err != nil {
		return total, fmt.Errorf("look for fuzz tests: %w", err)
	}
	turn := turns.Of(fuzzTurns)
	byDir := inTurn(list, turn)
	dirs := slices.Sorted(maps.Keys(byDir))
	fmt.Fprintf(out, "fuzz: part %d of %d, which take turns by the hour (make fuzz: all): %s\n", turn+1, fuzzTurns, strings.Join(dirs, " "))
	tmp, err := os.MkdirTemp("", "fuzz")
	if err != nil {
		return total, err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	said, cpu, err := t.buildFuzz(ctx, tmp, dirs)
	if err != nil {
		fmt.Fprintf(out, "%sFAIL\tfuzz tests [build failed]: %v\n", said, err)
		return counts{failed: 1, failures: []string{"fuzz tests"}, cpu: cpu}, ctx.Err()
	}
	total.cpu = cpu
	var mu sync.Mutex // covers out and total
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.SetLimit(fuzzAtOnce)
	for _, dir := range dirs {
		for _, f := range byDir[dir] {
			tasks.Go(func() error {
				c, said, err := t.fuzzOne(ctx, f, fuzzProgram(tmp, dir))
				mu.Lock()
				defer mu.Unlock()
				total.add(c)
				_, _ = out.Write(said)
				return err
			})
		}
	}
	err = tasks.Wait()
	return total, err
}

// fuzzProgram is where buildFuzz puts a directory's test program.
func fuzzProgram(tmp, dir string) string {
	return filepath.Join(tmp, strings.ReplaceAll(dir, "/", "_"), filepath.Base(dir)+".test")
}

// buildFuzz makes the packages' test programs, of what the tier unit has compiled.
func (t tier) buildFuzz(ctx context.Context, tmp string, dirs []string) (said []byte, cpu time.Duration, err error) {
	for _, dir := range dirs {
		program := fuzzProgram(tmp, dir)
		if err := os.Mkdir(filepath.Dir(program), 0o755); err != nil {
			return nil, cpu, err
		}
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet", "off", "-ldflags", "-w", "-o", program, dir)
		t.meter.join(cmd)
		said, err = cmd.CombinedOutput()
		cpu += spent(cmd)
		if err != nil {
			return said, cpu, err
		}
	}
	return nil, cpu, nil
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
