package store

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Lock makes the state directory dir (0700), if it is not there, and keeps other processes
// that call Lock out of it until release, or the end of this one. It waits for d at most for
// another one to let go; then the error wraps ErrInUse. The lock is flock(2) of the directory
// itself, so that it is there before any file is, and leaves none. On the few file systems
// that lock no directories (NFS) it keeps nobody out.
func Lock(dir string, d time.Duration) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state directory: %w%s", err, Advice(err))
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open the state directory: %w%s", err, Advice(err))
	}
	for end := time.Now().Add(d); ; time.Sleep(20 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EWOULDBLOCK) && time.Now().Before(end), errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			_ = f.Close()
			return nil, fmt.Errorf("state directory %s: %w, or by a restore: stop that agent, or wait for the restore, or give this agent a state directory of its own", dir, ErrInUse)
		}
		return func() { _ = f.Close() }, nil
	}
}
