package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// flowCommands run other commands. It is filled by init, since those run these.
var flowCommands map[string]command

func init() {
	flowCommands = map[string]command{
		"eventually": eventually,
		"idle":       idle,
		"match":      match,
		"together":   together,
		"sleep":      sleep,
		"same":       same,
		"prints":     prints,
		"heard":      heard,
	}
}

// parse finds the command of a line that is an argument of another one; ! in
// front of it means that it has to fail.
func parse(line []string) (command, []string, error) {
	if len(line) > 1 && line[0] == "!" {
		c, args, err := parse(line[1:])
		return not(c), args, err
	}
	if len(line) == 0 || commands()[line[0]] == nil {
		return nil, nil, usageError(fmt.Sprintf("%q is not a command of tests/README.md", line))
	}
	return commands()[line[0]], line[1:], nil
}

func not(c command) command {
	return func(ctx context.Context, s *state, args []string) (string, error) {
		out, err := c(ctx, s, args)
		var usage usageError
		switch {
		case errors.As(err, &usage):
			return out, err
		case err == nil:
			return out, fmt.Errorf("this succeeds, and should fail: %q: %s", args, out)
		}
		return out, nil
	}
}

// eventually DURATION COMMAND: repeat it until it works.
func eventually(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) < 2 {
		return "", usageError("usage: eventually DURATION COMMAND...")
	}
	within, err := time.ParseDuration(args[0])
	if err != nil {
		return "", usageError(err.Error())
	}
	c, rest, err := parse(args[1:])
	if err != nil {
		return "", err
	}
	var out string
	var wrong usageError
	err = lab.Eventually(ctx, within*s.patience(), func() error {
		var err error
		if out, err = c(ctx, s, rest); errors.As(err, &wrong) {
			return nil
		}
		return err
	})
	if wrong != "" {
		err = wrong
	}
	return out, err
}

// match REGEXP COMMAND: its output matches.
func match(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) < 2 {
		return "", usageError("usage: match REGEXP COMMAND...")
	}
	re, err := regexp.Compile("(?m)" + args[0])
	if err != nil {
		return "", usageError(err.Error())
	}
	c, rest, err := parse(args[1:])
	if err != nil {
		return "", err
	}
	out, err := c(ctx, s, rest)
	if err == nil && !re.MatchString(out) {
		err = fmt.Errorf("%q does not match:\n%s", args[0], out)
	}
	return out, err
}

// together COMMAND and COMMAND ...: at the same time; all have to work.
func together(ctx context.Context, s *state, args []string) (string, error) {
	var lines [][]string
	for {
		i := slices.Index(args, "and")
		if i < 0 {
			return s.together(ctx, append(lines, args))
		}
		lines, args = append(lines, args[:i]), args[i+1:]
	}
}

// hearScript says when grapevine's output first matched, in ns.
const hearScript = `re=$1; shift; until grapevine "$@" | grep -qE -e "$re"; do sleep 0.05; done; date +%s%N`

// heard N REGEXP GRAPEVINE-ARGUMENTS... and COMMAND...: what the command does is known on
// the first N hosts within 30 s. It prints how long after the first the others knew.
func heard(ctx context.Context, s *state, args []string) (string, error) {
	and := slices.Index(args, "and")
	if s.lab == nil || and < 3 || and == len(args)-1 {
		return "", usageError("usage, after hosts: heard N REGEXP GRAPEVINE-ARGUMENTS... and COMMAND...")
	}
	n, err := strconv.Atoi(args[0])
	if err != nil || n < 1 || n > len(s.lab.Hosts) {
		return "", usageError("heard: there are not so many hosts: " + args[0])
	}
	c, rest, err := parse(args[and+1:])
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second*s.patience())
	defer cancel()
	at := make([]int64, n)
	var hosts errgroup.Group
	for i, h := range s.lab.Hosts[:n] {
		hosts.Go(func() error {
			out, err := h.Exec(ctx, append([]string{"sh", "-c", hearScript, "hear"}, args[1:and]...)...)
			if err == nil {
				at[i], err = strconv.ParseInt(strings.TrimSpace(out), 10, 64)
			}
			return err
		})
	}
	out, err := c(ctx, s, rest)
	if err != nil {
		cancel()
	}
	if heard := hosts.Wait(); err == nil {
		err = heard
	}
	if err != nil {
		return out, err
	}
	slices.Sort(at)
	after := func(i int) time.Duration { return time.Duration(at[i] - at[0]).Round(10 * time.Millisecond) }
	return fmt.Sprintf("%d hosts: half of them %v after the first, all %v\n", n, after(n/2), after(n-1)), nil
}

// sleep DURATION.
func sleep(ctx context.Context, _ *state, args []string) (string, error) {
	if len(args) != 1 {
		return "", usageError("usage: sleep DURATION")
	}
	d, err := time.ParseDuration(args[0])
	if err != nil {
		return "", usageError(err.Error())
	}
	select {
	case <-time.After(d):
		return "", nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// prints FILE COMMAND: its output is that file of the script.
func prints(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) < 2 {
		return "", usageError("usage: prints FILE COMMAND...")
	}
	want, err := os.ReadFile(filepath.Join(s.dir, args[0]))
	if err != nil {
		return "", usageError(err.Error())
	}
	c, rest, err := parse(args[1:])
	if err != nil {
		return "", err
	}
	out, err := c(ctx, s, rest)
	if err == nil && strings.TrimSpace(out) != strings.TrimSpace(string(want)) {
		err = fmt.Errorf("it prints\n%s\nand %s is\n%s", out, args[0], want)
	}
	return out, err
}

// same A B: two texts are equal.
func same(_ context.Context, _ *state, args []string) (string, error) {
	if len(args) != 2 {
		return "", usageError("usage: same A B")
	}
	if args[0] != args[1] {
		return "", fmt.Errorf("%q is not %q", args[0], args[1])
	}
	return "", nil
}
