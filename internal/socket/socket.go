// Package socket makes the unix sockets that an agent answers on.
package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// ErrAnswered is the error of Listen if somebody else answers on the socket.
var ErrAnswered = errors.New("another agent answers there")

const (
	// answerWait is how long Listen waits for who answers to be gone: a child that an
	// agent was about to start when it was killed holds its sockets until it runs its
	// own program, on a busy machine for 100 ms.
	answerWait = 3 * time.Second
	// answerEvery is how often it looks.
	answerEvery = 20 * time.Millisecond
)

// Listen makes the unix socket at path for root only, and its directory with the mode
// dir. A socket that nobody answers on (its agent was killed) is replaced; of one that
// is answered for three seconds the error is ErrAnswered.
func Listen(ctx context.Context, path string, dir fs.FileMode) (net.Listener, error) {
	return listen(ctx, path, dir, answerWait)
}

func listen(ctx context.Context, path string, dir fs.FileMode, wait time.Duration) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), dir); err != nil {
		return nil, fmt.Errorf("make the directory of socket %s: %w", path, err)
	}
	if err := awaitSilence(ctx, path, wait); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	switch st, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("look for an old socket: %w", err)
	case st.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("listen on %s: it exists and is no socket; remove it", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove the socket of an agent that is gone: %w", err)
		}
	}
	old := syscall.Umask(0o177) // never open to others, not for a moment
	l, err := net.Listen("unix", path)
	syscall.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("open the agent's socket: %w; the agent must run as root, and the directory be writable", err)
	}
	return l, nil
}

// awaitSilence returns when nobody answers at path.
func awaitSilence(ctx context.Context, path string, wait time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, ErrAnswered)
	defer cancel()
	for {
		c, err := net.DialTimeout("unix", path, time.Second)
		if err != nil {
			return nil
		}
		_ = c.Close()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(answerEvery):
		}
	}
}
