package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	hostlink "github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/tests/lab"
	webpage "github.com/grapevine-net/grapevine/tests/page"
)

// Run runs scripts as subtests, each with a lab of its own and as many at the same time as
// -parallel says; opts says what all of them have in common.
func Run(t *testing.T, opts lab.Options, files ...string) { RunChanges(t, opts, nil, files...) }

// RunChanges does the same; of what scripts do only if [change:NAME] it is what some says, nil: all.
func RunChanges(t *testing.T, opts lab.Options, some func(change string) bool, files ...string) {
	run(t, opts, some, longFirst(files, os.ReadFile), nil)
}

// RunBefore does the same as Run, and then runs others, those of them that begin within so long a time. The rest is skipped,
// each by name: on a slow machine all of them would take too long.
func RunBefore(t *testing.T, opts lab.Options, files, others []string, within time.Duration) {
	late := map[string]time.Time{}
	for _, f := range others {
		late[strings.TrimSuffix(filepath.Base(f), ".txtar")] = time.Now().Add(within)
	}
	run(t, opts, nil, append(longFirst(files, os.ReadFile), longFirst(others, os.ReadFile)...), late)
}

// run runs scripts in this order; those that have a time are skipped after it.
func run(t *testing.T, opts lab.Options, some func(change string) bool, files []string, late map[string]time.Time) {
	opts.LittleGC = true
	cmds := map[string]func(*testscript.TestScript, bool, []string){}
	for name, c := range commands() {
		cmds[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			ts.Value(stateKey{}).(*state).run(ts, c, neg, args)
		}
	}
	all := &suite{script: script{t, newTurns()}, late: late}
	defer all.running.Wait()
	deadline, _ := t.Deadline()
	testscript.RunT(all, testscript.Params{
		Files:     files,
		Deadline:  deadline,
		Cmds:      cmds,
		Condition: func(name string) (bool, error) { return condition(opts, some, name) },
		Setup: func(env *testscript.Env) error {
			s := newState(t.Context(), opts)
			s.places = all.places
			env.Values[stateKey{}] = s
			env.Setenv("image", lab.Image)
			env.Setenv("outside", lab.OutsideAddr)
			env.Setenv("outside6", lab.OutsideAddr6)
			env.Setenv("registry", lab.Registry)
			env.Defer(func() {
				if t, ok := env.T().(test); ok && t.Failed() {
					env.T().Log(s.afterFailure(t.Name()))
				}
				if err := s.close(); err != nil {
					env.T().Fatal(err)
				}
				if s.lab != nil && s.lab.Processors() > 0 {
					env.T().Log(fmt.Sprintf("processors %.1f s", s.lab.Processors().Seconds()))
				}
			})
			return nil
		},
		RequireUniqueNames: true,
		WorkdirRoot:        t.TempDir(), // else `-run` of some leaves the directory of all
	})
}

// condition is what a script may ask for: [machine], that its hosts have the machine's own
// programs, and not those of another release; [browser], that there is one; [change:NAME], that it is to make that change.
func condition(opts lab.Options, some func(string) bool, name string) (bool, error) {
	if change, is := strings.CutPrefix(name, "change:"); is {
		return some == nil || some(change), nil
	}
	if name == "userspace" { // which datapath of Open vSwitch's the hosts have: kernels of their own have the module
		return opts.Kind != lab.UML && !lab.InGuest(), nil
	}
	if name == "netem" { // whether kernels can delay packets: Debian's User-Mode Linux can
		return opts.Kind == lab.UML || hostlink.CanLag() == nil, nil
	}
	if name == "browser" { // whether there is what the page is looked at with: a run of CI is not without
		root, err := lab.ModuleRoot()
		return webpage.Missing(root) == "" || os.Getenv("CI") != "", err
	}
	if name != "machine" {
		return false, fmt.Errorf("unknown condition %s", name)
	}
	return opts.Tree == "" && opts.Kind == lab.Namespace, nil
}

type stateKey struct{}

// state is what the commands of one script share.
type state struct {
	ctx         context.Context
	opts        lab.Options
	places      *turns
	lab         *lab.Lab
	pings       map[string]*lab.Pinging
	inventories map[string]string
	isolation   *isolation
	browser     *webpage.Browser
	tab         *webpage.Tab
	setenv      func(key, value string)
	dir         string // where the files of the script are
}

func newState(ctx context.Context, opts lab.Options) *state {
	return &state{ctx: ctx, opts: opts, pings: map[string]*lab.Pinging{}, inventories: map[string]string{}}
}

// patience is a factor of waiting times.
func (s *state) patience() time.Duration { return s.opts.Patience() }

func (s *state) close() error {
	var err error
	if s.browser != nil {
		err = s.browser.Close()
	}
	if s.lab != nil {
		err = errors.Join(err, s.lab.Close())
	}
	return err
}

// command does one line of a script; its output is what `stdout` matches.
type command func(ctx context.Context, s *state, args []string) (string, error)

// forever is longer than any command waits for anything, patience included: one that takes
// this long hangs, and fails with what there is to see of it.
func (s *state) forever() time.Duration {
	// On kernels of their own `isolation docker` has taken eight minutes at a load of 45.
	if lab.InGuest() || s.opts.Kind == lab.UML {
		return 20 * time.Minute
	}
	return 5 * time.Minute
}

// run runs a command; with neg it has to fail.
func (s *state) run(ts *testscript.TestScript, c command, neg bool, args []string) {
	s.setenv, s.dir = ts.Setenv, ts.MkAbs("")
	begin := time.Now()
	forever := s.forever()
	ctx, cancel := context.WithTimeout(s.ctx, forever)
	defer cancel()
	out, err := c(ctx, s, args)
	fmt.Fprint(ts.Stdout(), out)
	if err != nil {
		fmt.Fprintln(ts.Stderr(), err)
	}
	ts.Logf("(%.1f s)", time.Since(begin).Seconds())
	var usage usageError
	switch {
	case errors.As(err, &usage):
		ts.Fatalf("%v", err)
	case ctx.Err() != nil && s.lab != nil:
		ts.Fatalf("this did not end within %s: %v%s%s", forever, err, s.lab.Stuck(), s.evidence())
	case neg && err == nil:
		ts.Fatalf("this succeeded, and should have failed")
	case !neg && err != nil:
		ts.Fatalf("%v%s", err, s.evidence())
	}
}

// evidence is the end of what every host's daemons, and its kernel if it has one, have said.
func (s *state) evidence() string {
	if s.lab == nil {
		return ""
	}
	var b strings.Builder
	for _, h := range s.lab.Hosts {
		for _, who := range []string{"agent", "dockerd", "console"} {
			if h.HasLog(who) {
				lines := 20
				if who == "console" {
					lines = 80 // the stack of a kernel that panicked takes more than 20, and why is before it
				}
				fmt.Fprintf(&b, "\n--- the end of %s's %s log:\n%s", h.Name, who, h.Log(who, lines))
			}
		}
		if blocked := h.Blocked(); blocked != "" {
			fmt.Fprintf(&b, "\n--- what %s's kernel blocks:\n%s", h.Name, blocked)
		}
	}
	return b.String()
}

// usageError is a mistake in the script: it fails even where failure is wanted.
type usageError string

func (e usageError) Error() string { return string(e) }

func commands() map[string]command {
	all := map[string]command{}
	for _, group := range []map[string]command{hostCommands, packetCommands, nameCommands, powerCommands, flowCommands, composeCommands, isolationCommands, firewallCommands, controlCommands, wireguardCommands, prometheusCommands, routerCommands, casesCommands, sshCommands, pageCommands} {
		maps.Copy(all, group)
	}
	for n := 1; n <= 9; n++ {
		name := fmt.Sprintf("host%d", n)
		all[name] = func(ctx context.Context, s *state, args []string) (string, error) {
			return s.onHost(ctx, name, args)
		}
	}
	return all
}
