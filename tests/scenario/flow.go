package scenario

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// flowCommands run other commands. It is filled by init, since those run these.
var flowCommands map[string]command

func init() {
	flowCommands = map[string]command{
		"eventually": eventually,
		"match":      match,
		"together":   together,
		"sleep":      sleep,
		"same":       same,
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
	err = lab.Eventually(ctx, within*s.patience, func() error {
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
