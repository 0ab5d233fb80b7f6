package wireguard

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// strays are the processes that were begun by a verb for a socket and do not listen on it: who lost it, with its
// directory, cannot be told by it to end, and keeps its port. Those of containers and of other users are not among them.
func strays(verb, socket string) (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	listens, _ := listener(socket)
	own, _ := os.Readlink("/proc/self/ns/pid")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == listens || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		argv := strings.Split(string(line), "\x00")
		if err != nil || len(argv) < 3 || argv[1] != verb || argv[2] != socket {
			continue
		}
		var st unix.Stat_t
		ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
		if err == nil && ns == own && unix.Stat(fmt.Sprintf("/proc/%d", pid), &st) == nil && int(st.Uid) == os.Geteuid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// endStrays kills them, and returns how many there were.
func endStrays(verb, socket string) (n int, err error) {
	var errs []error
	for _, pid := range strays(verb, socket) {
		n++
		errs = append(errs, kill(pid))
	}
	return n, errors.Join(errs...)
}

// kill ends a process, and returns when it has let go of what it had: the last of its threads, of which the first may be gone
// before.
func kill(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == nil {
		defer func() { _ = unix.Close(fd) }()
		err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("end the process of WireGuard: %w", err)
	}
	for end := time.Now().Add(patience); time.Now().Before(end); {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return nil
		}
	}
	return nil
}
