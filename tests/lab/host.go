package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Host is a Docker host. Its methods may be called from several goroutines, but
// not while Boot or PowerOff runs.
type Host struct {
	// Name is host1, host2, ...
	Name string

	lab      *Lab
	n        int
	machine  machine
	enabled  bool // the agent is started at boot, with extraEnv
	extraEnv []string
}

// machine is what makes a host's kernel run.
type machine interface {
	boot(context.Context) error
	kill() // at once, with everything in it
	server() *box
}

func newHost(l *Lab, n int) *Host {
	h := &Host{Name: fmt.Sprintf("host%d", n), lab: l, n: n}
	if l.opts.Kind == UML {
		h.machine = &umlMachine{host: h}
	} else {
		h.machine = &nsMachine{host: h}
	}
	return h
}

// Addr and Addr6 are the host's addresses on the wire.
func (h *Host) Addr() netip.Addr { return netip.MustParseAddr(hostAddr4(h.n)) }

// Addr6 is the host's IPv6 address on the wire.
func (h *Host) Addr6() netip.Addr { return netip.MustParseAddr(hostAddr6(h.n)) }

// Boot starts the host with the disk it had: the agent, if it ran when the power
// went off, then Docker, as their services order it. It returns when Docker answers. A host whose agent ran as that of
// one without Docker has none.
func (h *Host) Boot(ctx context.Context) error {
	begin := time.Now()
	if err := os.MkdirAll(h.logDir(), 0o755); err != nil {
		return err
	}
	if err := h.machine.boot(ctx); err != nil {
		return fmt.Errorf("boot: %w", err)
	}
	if h.enabled {
		if err := h.StartAgent(ctx, h.extraEnv...); err != nil {
			return err
		}
	}
	if h.enabled && slices.Contains(h.extraEnv, withoutDocker) {
		return nil
	}
	if err := h.StartDocker(ctx); err != nil {
		return err
	}
	h.lab.progress("%s is up, Docker answers (%.1f s)", h.Name, time.Since(begin).Seconds())
	return nil
}

// BootDockerFirst is Boot with a service of the agent's that comes late: only Docker is
// started, and not waited for, since it may look for the agent before it answers.
func (h *Host) BootDockerFirst(ctx context.Context) error {
	if err := h.machine.boot(ctx); err != nil {
		return fmt.Errorf("boot: %w", err)
	}
	return startDockerd(ctx, h)
}

// PowerOff ends all of the host's processes at once and keeps its disk.
func (h *Host) PowerOff() error {
	h.machine.kill()
	return removeCgroups(h.cgroup())
}

// Exec runs a command in the host and returns its standard output; a failed
// command gives an [ExitError].
func (h *Host) Exec(ctx context.Context, argv ...string) (string, error) {
	return h.machine.server().run(ctx, request{Argv: argv})
}

// ExecInput is Exec with something on the command's standard input.
func (h *Host) ExecInput(ctx context.Context, stdin []byte, argv ...string) (string, error) {
	return h.machine.server().run(ctx, request{Argv: argv, Stdin: stdin})
}

// Fetch gets an URL on the host.
func (h *Host) Fetch(ctx context.Context, url string) (string, error) {
	return h.machine.server().run(ctx, fetchRequest(0, url, labhost))
}

// Docker runs the docker command.
func (h *Host) Docker(ctx context.Context, args ...string) (string, error) {
	return h.Exec(ctx, append([]string{"docker"}, args...)...)
}

// Grapevine runs the grapevine command.
func (h *Host) Grapevine(ctx context.Context, args ...string) (string, error) {
	return h.Exec(ctx, append([]string{"grapevine"}, args...)...)
}

// Start starts a daemon that goes on after the call; its output goes to a log of
// its name, see Log.
func (h *Host) Start(ctx context.Context, name string, env []string, argv ...string) error {
	log := filepath.Join(shareMount, "log", h.Name, name+".log")
	_, _, _, err := h.machine.server().do(ctx, request{Op: opStart, Name: name, Argv: argv, Env: env, Log: log})
	return err
}

// Stop sends a daemon a signal and waits for its end; one that is not running is
// no error, one that is still running after wait (with patience) is.
// With no wait it is a signal that does not end it.
func (h *Host) Stop(ctx context.Context, name string, sig syscall.Signal, wait time.Duration) error {
	last, _, _, err := h.machine.server().do(ctx, request{Op: opSignal, Name: name, Sig: sig, Wait: wait * h.lab.opts.Patience()})
	if err == nil && last.Running && wait > 0 {
		err = fmt.Errorf("%s: %s still runs %s after signal %v:\n%s", h.Name, name, wait, sig, h.Log(name, 20))
	}
	return err
}

// Running tells whether a daemon runs.
func (h *Host) Running(ctx context.Context, name string) (bool, error) {
	last, _, _, err := h.machine.server().do(ctx, request{Op: opSignal, Name: name})
	return last.Running, err
}

// await waits until the server behind a unix socket answers HTTP, or with no path
// until it accepts; an error has the end of the daemon's log.
func (h *Host) await(ctx context.Context, daemon, socket, path string, wait time.Duration) error {
	get := request{Op: opGet, Name: daemon, Path: path, Unix: socket, Wait: wait}
	if _, _, _, err := h.machine.server().do(ctx, get); err != nil {
		return errors.Join(err, fmt.Errorf("the end of %s's log:\n%s", daemon, h.Log(daemon, 60)))
	}
	return nil
}

func (h *Host) dir() string    { return h.lab.sub(h.Name) }
func (h *Host) cgroup() string { return h.lab.id + "/" + h.Name }
func (h *Host) logDir() string { return filepath.Join(h.lab.share(), "log", h.Name) }

// Log returns the last lines of what a daemon said.
func (h *Host) Log(daemon string, lines int) string {
	return tail(filepath.Join(h.logDir(), daemon+".log"), lines)
}

// WholeLog is all that a daemon has said on this host, debugging too.
func (h *Host) WholeLog(daemon string) (string, error) {
	text, err := os.ReadFile(filepath.Join(h.logDir(), daemon+".log"))
	return string(text), err
}

// HasLog reports whether a daemon has said anything on this host.
func (h *Host) HasLog(daemon string) bool {
	info, err := os.Stat(filepath.Join(h.logDir(), daemon+".log"))
	return err == nil && info.Size() > 0
}

// tail returns the last lines of a file, or says why there are none.
func tail(name string, lines int) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	// dockerd tells every step of its connection to containerd; debugging is for whole logs.
	all = slices.DeleteFunc(all, func(line string) bool {
		return strings.HasSuffix(line, " module=grpc") || strings.Contains(line, " level=DEBUG ")
	})
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// InNetwork is the command line that runs argv, a program of this machine, in the host's network; nil, where the host has a kernel of its
// own.
func (h *Host) InNetwork(argv ...string) []string {
	m, is := h.machine.(*nsMachine)
	if !is || m.box == nil {
		return nil
	}
	return append([]string{"nsenter", "--net", "--target", strconv.Itoa(m.box.pid()), "--"}, argv...)
}
