package plugin

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Listen makes the unix socket at path, with its directory, for root only. A
// socket file that nothing answers on (the agent was killed) is replaced; one
// that is answered is an error, as a second agent would take Docker's calls away
// from the first.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the plugin socket's directory: %w", err)
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("another agent answers at %s, where Docker calls the driver: stop that one first", path)
	}
	if st, err := os.Lstat(path); err == nil {
		if st.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("plugin socket %s exists and is no socket; remove it", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove the stale plugin socket: %w", err)
		}
	}
	old := syscall.Umask(0o177)
	l, err := net.Listen("unix", path)
	syscall.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("listen on the plugin socket: %w; the agent must run as root, and the directory be writable", err)
	}
	return l, nil
}
