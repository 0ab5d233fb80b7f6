package socket

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// killed leaves a socket as an agent does that is killed: the file stays.
func killed(t *testing.T, path string) *os.File {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	return f
}

func mustListen(t *testing.T, path string, dir fs.FileMode) {
	t.Helper()
	l, err := Listen(t.Context(), path, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
}

func TestForRootOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "a.sock")
	mustListen(t, path, 0o700)
	for path, mode := range map[string]fs.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

func TestAnsweredIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.sock")
	mustListen(t, path, 0o700)
	if _, err := listen(t.Context(), path, 0o700, 3*answerEvery); !errors.Is(err, ErrAnswered) {
		t.Errorf("a second agent on one socket: %v", err)
	}
}

func TestStaleIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.sock")
	_ = killed(t, path).Close()
	mustListen(t, path, 0o700)
}

// TestChildOfTheKilled waits for the socket that a child of a killed agent still holds.
func TestChildOfTheKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.sock")
	held := killed(t, path)
	child := exec.Command("sleep", "0.3")
	child.ExtraFiles = []*os.File{held}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Wait() })
	_ = held.Close()
	mustListen(t, path, 0o700)
}

func TestNoSocketIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.sock")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), path, 0o700); err == nil {
		t.Error("a file was taken for a socket")
	}
	if b, err := os.ReadFile(path); string(b) != "mine" {
		t.Errorf("the file is %q now, %v", b, err)
	}
}

// TestEndsWithContext: an agent that is told to stop does not wait on.
func TestEndsWithContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.sock")
	mustListen(t, path, 0o700)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := listen(ctx, path, 0o700, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("told to stop: %v", err)
	}
}
