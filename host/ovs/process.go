package ovs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// daemon is how to run one of the daemons and how to recognise it.
type daemon struct {
	name   string
	args   []string
	runDir string
}

// process is a running daemon, held by a pidfd: a pid that is used again by
// another program is never mistaken for it.
type process struct {
	pid     int
	fd      int // pidfd's; pidfd.Fd would take it from the runtime's poller
	pidfd   *os.File
	adopted bool // it was found, and not started here
}

func (d daemon) pidFile() string { return filepath.Join(d.runDir, d.name+".pid") }

// find returns the running daemon of our run directory, or nil: by its pid file, or without it, since
// somebody has removed that. The daemon has the database and the datapath, and a second one gets neither.
func (d daemon) find() *process {
	if text, err := os.ReadFile(d.pidFile()); err == nil {
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			// What may not be looked at is believed.
			if p := d.hold(pid, func(ours bool, err error) bool { return ours || err != nil }); p != nil {
				return p
			}
		}
	}
	all, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well formed
	for _, dir := range all {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			if p := d.hold(pid, func(ours bool, err error) bool { return ours && err == nil }); p != nil {
				return p
			}
		}
	}
	return nil
}

// hold returns the process if it is the daemon, and by what shares says of it, ours.
func (d daemon) hold(pid int, ours func(bool, error) bool) *process {
	if !d.is(pid) {
		return nil
	}
	p, err := openProcess(pid)
	if err != nil {
		return nil
	}
	// Again after the pidfd is open, so that what is looked at is what is held.
	if !d.is(pid) || !ours(d.shares(pid)) {
		p.release()
		return nil
	}
	p.adopted = true
	return p
}

// shares says whether a process has our user, our network, and at the path of the run directory ours:
// the path alone is the same in containers, and on the hosts of a lab.
func (d daemon) shares(pid int) (bool, error) {
	proc := fmt.Sprintf("/proc/%d", pid)
	var st unix.Stat_t
	if err := unix.Stat(proc, &st); err != nil || int(st.Uid) != os.Geteuid() {
		return false, err
	}
	theirs, err := os.Readlink(proc + "/ns/net")
	ours, err2 := os.Readlink("/proc/thread-self/ns/net")
	if err := errors.Join(err, err2); err != nil || theirs != ours {
		return false, err
	}
	for dir := d.runDir; ; dir = filepath.Dir(dir) {
		here, err := os.Stat(dir)
		if absent(err) && dir != filepath.Dir(dir) {
			continue // removed as well
		}
		there, err2 := os.Stat(filepath.Join(proc, "root", dir))
		if absent(err2) {
			return false, nil
		}
		err = errors.Join(err, err2)
		return err == nil && os.SameFile(here, there), err
	}
}

// missing is a file by which others find the running daemon and which is not there, "" if none is.
func (d daemon) missing(pid int) string {
	files := []string{d.pidFile(), filepath.Join(d.runDir, fmt.Sprintf("%s.%d.ctl", d.name, pid))}
	if d.name == "ovsdb-server" {
		files = append(files, filepath.Join(d.runDir, dbSocket))
	}
	for _, f := range files {
		if _, err := os.Lstat(f); absent(err) {
			return f
		}
	}
	return ""
}

// absent: there is no such file, or something else is in the place of its directory.
func absent(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
}

// is says whether the process runs this program for our run directory.
func (d daemon) is(pid int) bool {
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	argv := strings.Split(string(cmdline), "\x00")
	return filepath.Base(argv[0]) == d.name && strings.Contains(string(cmdline), "\x00--pidfile="+d.pidFile()+"\x00")
}

// sweep removes what a daemon left that was killed: its pid, which may be another
// process' by now, and sockets that nobody answers on.
func (d daemon) sweep() error {
	patterns := []string{d.name + ".*.ctl"}
	if d.name == "ovs-vswitchd" {
		patterns = append(patterns, "*.mgmt", "*.snoop")
	}
	stale := []string{d.pidFile()}
	for _, p := range patterns {
		found, _ := filepath.Glob(filepath.Join(d.runDir, p)) // the patterns are well formed
		stale = append(stale, found...)
	}
	for _, name := range stale {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove what a killed %s left: %w", d.name, err)
		}
	}
	return nil
}

// sweepTools removes the control sockets of ovs-ofctl that was killed, as with the agent that
// ran it: it removes its own at its end, and nobody else ever does.
func sweepTools(runDir string) error {
	found, _ := filepath.Glob(filepath.Join(runDir, "ovs-ofctl.*.ctl")) // the pattern is well formed
	for _, name := range found {
		pid := strings.Split(filepath.Base(name), ".")[1]
		if _, err := os.Stat("/proc/" + pid); err == nil {
			continue // it runs, or another program has its pid by now: next time
		}
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove what a killed ovs-ofctl left: %w", err)
		}
	}
	return nil
}

// start runs the daemon in a session of its own, so that no signal to the agent's
// group or terminal reaches it. What it prints goes to its log file.
func (d daemon) start() (*process, error) {
	path, err := find(d.name)
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(d.runDir, d.name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", d.name, err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(path, d.args...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+d.runDir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", d.name, err)
	}
	p, err := openProcess(cmd.Process.Pid)
	// Reaps the child when it ends; at the agent's end init does.
	go func() { _ = cmd.Wait() }()
	return p, err
}

func openProcess(pid int) (*process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("hold process %d: %w", pid, err)
	}
	return &process{pid: pid, fd: fd, pidfd: os.NewFile(uintptr(fd), fmt.Sprintf("pidfd:%d", pid))}, nil
}

func (p *process) release() { _ = p.pidfd.Close() }

// wait blocks until the process has ended (an error that says so) or ctx is done.
// The runtime's poller waits for the pidfd: no thread, no polling.
func (p *process) wait(ctx context.Context) error {
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return fmt.Errorf("wait for process %d: %w", p.pid, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = p.pidfd.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err = raw.Read(func(fd uintptr) bool {
		ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, _ := unix.Poll(ready, 0)
		return n > 0
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("wait for process %d: %w", p.pid, err)
	}
	return fmt.Errorf("process %d ended", p.pid)
}

// terminate ends the process: politely, then not.
func (p *process) terminate(ctx context.Context) error {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		err := unix.PidfdSendSignal(p.fd, s, nil, 0)
		if errors.Is(err, unix.ESRCH) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("end process %d: %w", p.pid, err)
		}
		ended, cancel := context.WithTimeout(ctx, 3*time.Second)
		_ = p.wait(ended) // nil, or ended's error
		done := ended.Err() == nil
		cancel()
		if done {
			return nil
		}
	}
	return fmt.Errorf("process %d does not end", p.pid)
}
