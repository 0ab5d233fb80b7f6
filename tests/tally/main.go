// Command tally runs the tests, tier by tier, and counts.
//
//	tally [-beside N] unit|policy|fuzz|race|lab|chaos|plugin|engines|page|uml|qemu|all-lab|all-chaos|all-uml|all-engines ...
//
// With -beside N tiers run beside each other, in the order in which they are named, each as soon as one has ended: labs
// wait for most of their time, and the processors are free for others. It prints what `go test` prints: a line for each
// package, and all that a failed test said; where a test takes long, a line for each that passed as well. At the
// end come what failed once more, a line each, the time of each tier beside its budget, the
// processors' time that it took, which is what it costs the tiers beside it, how busy the processors were in each minute, and, as
// the last line, how many tests passed and failed. It fails if a test did, or a
// package that does not build. Up to six failed tests are run once more, alone: if all of them
// pass, they are named as shaky, and nothing has failed.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/tests/turns"
)

// tier is a part of the tests.
type tier struct {
	name string
	what string
	// args of `go test`; the packages of unit are all those that no other tier has.
	args []string
	// budget is what the tier should take on two idle cores. It is no limit.
	budget  time.Duration
	verbose bool // name each test that passes
	// module is the directory of the module that the packages are of, if it is one of its own.
	module string
	meter  meter
}

var tiers = []tier{
	{"unit", "packages by themselves", []string{}, 4 * time.Minute, false, "", meter{}},
	{"policy", "policies against Kubernetes' own types and cyclonus", []string{"-mod=mod", "./..."}, 3 * time.Minute, true, "tests/policy", meter{}},
	{"fuzz", "a third of the fuzz tests, each for a moment", []string{}, time.Minute, true, "", meter{}},
	{"race", "some packages with the race detector, which take turns by the hour", []string{}, 2 * time.Minute, false, "", meter{}},
	{"lab", "scenarios on Docker hosts made of namespaces, a third of the rare ones by turns of an hour", []string{"-p", "2", "-parallel", "5", "./tests", "./tests/lab", "-turns"}, 10 * time.Minute, true, "", meter{}},
	{"chaos", "containers come and go while faults strike, a run of two by turns of an hour", []string{"./tests/chaos", "-turns"}, 2 * time.Minute, true, "", meter{}},
	{"plugin", "scenarios with the managed plugin, the rare ones once in four hours", []string{"-p", "1", "-parallel", "2", "./tests/plugin", "-turns"}, 2 * time.Minute, true, "", meter{}},
	{"engines", "the core of the scenarios, each on one of the other releases of Docker, which take turns by the hour", []string{"-p", "1", "-parallel", "2", "./tests/engines", "-turns"}, 3 * time.Minute, true, "", meter{}},
	{"page", "the web page in a browser", []string{"./tests/page"}, time.Minute, true, "", meter{}},
	{"uml", "a fifth of the scenarios on kernels of their own, by turns of an hour", []string{"-p", "1", "-parallel", "1", "./tests/uml", "-turns"}, 3 * time.Minute, true, "", meter{}},
	{"qemu", "scenarios on an ordinary kernel, which is emulated", []string{"./tests/qemu"}, 15 * time.Minute, true, "", meter{}},
	{"all-lab", "all scenarios on Docker hosts made of namespaces", []string{"-p", "2", "-parallel", "5", "./tests", "./tests/lab"}, 12 * time.Minute, true, "", meter{}},
	{"all-chaos", "containers come and go while faults strike", []string{"./tests/chaos"}, 4 * time.Minute, true, "", meter{}},
	{"all-uml", "all scenarios on kernels of their own", []string{"-p", "1", "-parallel", "1", "./tests/uml"}, 20 * time.Minute, true, "", meter{}},
	{"all-engines", "all scenarios on all releases of Docker", []string{"-p", "1", "-parallel", "2", "./tests/engines", "-all"}, time.Hour, true, "", meter{}},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, os.Stdout, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
	}
	if err != nil || !ok {
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

func run(ctx context.Context, out io.Writer, args []string) (ok bool, err error) {
	flags := flag.NewFlagSet("tally", flag.ContinueOnError)
	flags.SetOutput(out)
	beside := flags.Int("beside", 1, "so many tiers run beside each other")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	if flags.NArg() == 0 || *beside < 1 {
		return false, fmt.Errorf("usage: tally [-beside N] TIER...: %s", tierNames())
	}
	list, err := tiersOf(flags.Args())
	if err != nil {
		return false, err
	}
	out = &shared{to: out}
	begin := time.Now()
	turn := strconv.Itoa(turns.Now())
	if err := os.Setenv(turns.Variable, turn); err != nil { // of all that is run, the failed again at the end too
		return false, err
	}
	fmt.Fprintf(out, "parts that take turns by the hour: %s=%s has these again\n", turns.Variable, turn)
	busy := watchProcessors(ctx, time.Minute)
	total, times, err := runBeside(ctx, out, list, *beside)
	if err != nil {
		return false, err
	}
	if total, err = again(ctx, out, total, begin); err != nil {
		return false, err
	}
	for _, f := range total.failures {
		fmt.Fprintf(out, "\nfailed: %s", f)
	}
	for _, s := range total.shaky {
		fmt.Fprintf(out, "\n%s", s)
	}
	took := time.Since(begin)
	fmt.Fprintf(out, "\n%s%sall     %s, processors %s of %s\n%s\n", times, busy(), took.Round(time.Second),
		total.cpu.Round(time.Second), (time.Duration(runtime.NumCPU()) * took).Round(time.Second), total)
	return total.failed == 0, nil
}

// tierNames are those of all tiers.
func tierNames() string {
	var names []string
	for _, t := range tiers {
		names = append(names, t.name)
	}
	return strings.Join(names, ", ")
}

func find(name string) (tier, bool) {
	for _, t := range tiers {
		if t.name == name {
			return t, true
		}
	}
	return tier{}, false
}

// run runs the tests of a tier, and counts what they take.
func (t tier) run(ctx context.Context, out io.Writer) (counts, error) {
	t.meter = newMeter(t.name)
	defer t.meter.close()
	c, err := t.tests(ctx, out)
	c.cpu = max(c.cpu, t.meter.spent())
	return c, err
}

func (t tier) tests(ctx context.Context, out io.Writer) (counts, error) {
	switch t.name {
	case "fuzz":
		return t.fuzz(ctx, out)
	case "race":
		return t.race(ctx, out)
	}
	if t.name == "unit" {
		return t.unit(ctx, out)
	}
	return t.goTest(ctx, out, t.args)
}

// waits is the package of which the tests, one after the other, wait for longer than all others take: half of them, by name, run
// beside the other half, each in namespaces of their own.
const waits, half = "overlay/fastpath", "^Test(Judged|Killed|Own)"

// unit runs the packages, and that one beside them.
func (t tier) unit(ctx context.Context, out io.Writer) (total counts, err error) {
	packages, err := unitPackages(ctx)
	if err != nil {
		return total, err
	}
	at := slices.IndexFunc(packages, func(p string) bool { return strings.HasSuffix(p, "/"+waits) })
	if at < 0 {
		return total, fmt.Errorf("there is no package %s", waits)
	}
	apart := packages[at]
	runs := [][]string{slices.Delete(packages, at, at+1), {"-run", half, apart}, {"-skip", half, apart}}
	counted := make([]counts, len(runs))
	tasks, ctx := errgroup.WithContext(ctx)
	for i, args := range runs {
		tasks.Go(func() (err error) {
			counted[i], err = t.goTest(ctx, out, args)
			return err
		})
	}
	err = tasks.Wait()
	for _, c := range counted {
		total.add(c)
	}
	return total, err
}

// hangs is after how long a package is ended: on a slow machine what waits takes as long as ever, and the
// rest several times as long.
const hangs = time.Hour

// goTest runs `go test -json`.
func (t tier) goTest(ctx context.Context, out io.Writer, args []string) (counts, error) {
	args = append([]string{"test", "-json", "-count=1", "-vet", "off", "-ldflags", "-w", "-timeout", max(hangs, 3*t.budget).String()}, args...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = t.module
	if t.name == "unit" {
		cmd.Env = inMemory()
	}
	return t.events(cmd, out)
}

// inMemory is the environment that has temporary files in memory, nil where there is no room: the packages write
// small files to the disk, by the thousand, and wait for each.
func inMemory() []string {
	const at, room = "/dev/shm", 4 << 30
	var fs unix.Statfs_t
	if unix.Statfs(at, &fs) != nil || fs.Type != unix.TMPFS_MAGIC || fs.Bavail*uint64(fs.Bsize) < room {
		return nil
	}
	return append(os.Environ(), "TMPDIR="+at)
}

// events runs a program that prints events of tests, and reads what it says to its end.
func (t tier) events(cmd *exec.Cmd, out io.Writer) (counts, error) {
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = out
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return counts{}, err
	}
	args := cmd.Args
	t.meter.join(cmd)
	if err := cmd.Start(); err != nil {
		return counts{}, err
	}
	c, readErr := tally(pipe, out, t.verbose)
	err = cmd.Wait()
	c.cpu = spent(cmd)
	if err != nil && c.failed == 0 {
		c.failed++ // it failed in a way that its events do not show
		fmt.Fprintf(out, "FAIL\t%s: %v\n", strings.Join(args, " "), err)
	}
	return c, readErr
}

// first are the packages that take longest, for most of which they wait: go test begins them in the order in which they are named,
// and what would begin last ends last, with nothing beside it.
var first = []string{"overlay", "host/filter"}

// longFirst puts those first.
func longFirst(packages []string) []string {
	after := func(p string) int {
		if i := slices.IndexFunc(first, func(name string) bool { return strings.HasSuffix(p, "/"+name) }); i >= 0 {
			return i
		}
		return len(first)
	}
	packages = slices.Clone(packages)
	slices.SortStableFunc(packages, func(a, b string) int { return after(a) - after(b) })
	return packages
}

// unitPackages are all packages of the module but those of the other tiers, those first that take longest.
func unitPackages(ctx context.Context) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "./...")
	cmd.Stderr = os.Stderr
	list, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var packages []string
	for _, p := range strings.Fields(string(list)) {
		if !ofOtherTier(p) {
			packages = append(packages, p)
		}
	}
	return longFirst(packages), nil
}

// ofOtherTier reports whether a tier names the package, by its path in the module.
func ofOtherTier(importPath string) bool {
	for _, t := range tiers {
		for _, arg := range t.args {
			if path, found := strings.CutPrefix(arg, "./"); found && strings.HasSuffix(importPath, "/"+path) {
				return true
			}
		}
	}
	return false
}
