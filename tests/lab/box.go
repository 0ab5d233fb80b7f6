package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// box is a set of namespaces with a server in it: a host, the wire, the outside.
// Ending its first process ends everything in it.
type box struct {
	name   string
	dir    string // holds ctl.sock and box.log
	cmd    *exec.Cmd
	ends   *os.File // the owner's end of the lifeline
	dialer func(context.Context) (net.Conn, error)
	// why says what became of a host that went away, as far as it can be known from outside; nil: nothing can.
	why func() string
}

// startBox starts the first process of a box. It returns before the box has set
// itself up; the first request waits for that.
func startBox(dir string, spec boxSpec, clone uintptr) (*box, error) {
	b := &box{name: spec.Hostname, dir: dir}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	listener, err := b.listen()
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	lifeline, owner, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer lifeline.Close()
	spec.Meter = newMeter(filepath.Base(filepath.Dir(dir)))
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(b.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args[0] = "grapevine-lab-" + spec.Hostname
	cmd.Env = append(append(boxEnv(), spec.Env...), roleVar+"="+roleBox, specVar+"="+string(text))
	cmd.ExtraFiles = []*os.File{listener, lifeline}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: clone}
	if err := cmd.Start(); err != nil {
		_ = owner.Close()
		return nil, fmt.Errorf("start the first process of %s (are you root?): %w", spec.Hostname, err)
	}
	b.cmd, b.ends = cmd, owner
	b.dialer = func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", b.socket())
	}
	if err := record(filepath.Join(dir, pidFile), b.pid()); err != nil {
		b.kill()
		return nil, err
	}
	return b, nil
}

// pidFile, in a box's directory, names its first process, for Clean.
const pidFile = "pid"

const (
	boxNamespaces = unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC
)

// boxEnv is what the commands of a box see of the owner's environment.
func boxEnv() []string {
	return []string{"PATH=" + labPath, "HOME=/root", "LANG=C.UTF-8", "TMPDIR=/run"}
}

func (b *box) socket() string  { return filepath.Join(b.dir, "ctl.sock") }
func (b *box) logFile() string { return filepath.Join(b.dir, "box.log") }
func (b *box) pid() int        { return b.cmd.Process.Pid }

func (b *box) listen() (*os.File, error) {
	_ = os.Remove(b.socket())
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: b.socket(), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", b.name, err)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	return l.File()
}

// do sends a request to the box's server. The context's end ends what runs.
func (b *box) do(ctx context.Context, req request) (reply, string, string, error) {
	conn, err := b.dialer(ctx)
	if err != nil {
		return reply{}, "", "", fmt.Errorf("%s: connect to its server: %w", b.name, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	last, stdout, stderr, err := roundTrip(conn, req)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if errors.Is(err, errGone) && b.why != nil {
		err = fmt.Errorf("%w; %s", err, b.why())
	}
	if err != nil {
		return last, stdout, stderr, fmt.Errorf("%s: %s %v%s: %w", b.name, req.Op, req.Name, req.Argv, err)
	}
	return last, stdout, stderr, nil
}

// run runs a command in the box and returns its standard output. A command that
// fails gives an [ExitError].
func (b *box) run(ctx context.Context, req request) (string, error) {
	req.Op = cmp.Or(req.Op, opRun)
	last, stdout, stderr, err := b.do(ctx, req)
	if err == nil && last.Exit != 0 {
		err = &ExitError{Argv: req.Argv, Code: last.Exit, Stdout: stdout, Stderr: stderr}
	}
	return stdout, err
}

// ready waits until the box has set itself up.
func (b *box) ready(ctx context.Context) error {
	if _, err := b.run(ctx, request{Argv: []string{"true"}}); err != nil {
		return errors.Join(err, errors.New(tail(b.logFile(), 10)))
	}
	return nil
}

// kill ends everything in the box at once; it returns when all of it is gone.
func (b *box) kill() {
	if b == nil || b.cmd == nil {
		return
	}
	_ = b.cmd.Process.Kill() // already gone is as good
	_ = b.cmd.Wait()
	_ = b.ends.Close()
	b.cmd = nil
}

// keep lets the box outlive its owner.
func (b *box) keep() error {
	_, err := b.ends.Write([]byte{1})
	return err
}
