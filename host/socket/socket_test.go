package socket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
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
	if _, err := listen(t.Context(), path, 0o700, 0, 3*answerEvery); !errors.Is(err, ErrAnswered) {
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
	if _, err := listen(ctx, path, 0o700, 0, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("told to stop: %v", err)
	}
}

// TestPutBack: a socket that somebody removes, its directory too, is there again, and the same
// listener answers on it; what stands in its place is named.
func TestPutBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	path := filepath.Join(dir, "a.sock")
	s, err := Listen(t.Context(), path, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	lent := s.Lend()
	calls := make(chan net.Conn)
	go func() {
		for c, err := lent.Accept(); err == nil; c, err = lent.Accept() {
			calls <- c
		}
		close(calls)
	}()
	answered := func(after string) {
		t.Helper()
		deadline := time.Now().Add(10 * time.Second)
		for {
			c, err := net.Dial("unix", path)
			if err == nil {
				defer c.Close()
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("after %s: %v, trouble: %v", after, err, s.Trouble())
			}
			time.Sleep(10 * time.Millisecond)
		}
		if c := <-calls; c == nil {
			t.Fatalf("after %s nobody answers", after)
		} else {
			_ = c.Close()
		}
		if err := s.Trouble(); err != nil {
			t.Errorf("after %s: %v", after, err)
		}
	}
	answered("the start")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Remove(path))
	answered("its removal")
	must(os.RemoveAll(dir))
	answered("that of its directory")
	must(os.WriteFile(path+".other", nil, 0o600))
	must(os.Rename(path+".other", path))
	for deadline := time.Now().Add(10 * time.Second); s.Trouble() == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody says that something else is in its place")
		}
	}
	must(os.Remove(path))
	answered("the removal of what was in its place")
	must(lent.Close())
	if _, open := <-calls; open {
		t.Error("a socket that was given back goes on answering")
	}
	must(s.Close())
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Close: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".new-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestWhoCallsWaits: between one who serves and the next, callers wait.
func TestWhoCallsWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.sock")
	s, err := Listen(t.Context(), path, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	first := s.Lend()
	_ = first.Close()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := first.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("who serves no more: %v", err)
	}
	got, err := s.Lend().Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = got.Close()
}

// TestListenGroup: who is of the group is heard, by its first group or another one, and nobody else but root is;
// also after the socket was put back.
func TestListenGroup(t *testing.T) {
	const group = 4711
	if os.Geteuid() != 0 && os.Getenv("CI") == "" {
		t.Skip("only root may call as others")
	}
	dir, err := os.MkdirTemp("/tmp", "socket")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "run", "read.sock")
	l, err := ListenGroup(t.Context(), path, group)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("hello"))
			_ = c.Close()
		}
	}()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	caller := filepath.Join(dir, "caller")
	if err := os.WriteFile(caller, text, 0o755); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		for _, tt := range []struct {
			uid, gid uint32
			groups   []uint32
			want     string
		}{{0, 0, nil, "hello"}, {65534, group, nil, "hello"}, {65534, 65534, []uint32{1, group, 2}, "hello"}, {65534, 65534, []uint32{1}, ""}, {65534, 0, nil, ""}} {
			cmd := exec.Command(caller)
			cmd.Dir, cmd.Env = dir, []string{"SOCKET_TEST_CALL=" + path}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: tt.uid, Gid: tt.gid, Groups: tt.groups}}
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != tt.want {
				t.Errorf("%d:%d %v: %q, %v", tt.uid, tt.gid, tt.groups, out, err)
			}
		}
	}
	check()
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	if err := l.look(); err != nil {
		t.Fatal(err)
	}
	check()
}

// TestMain is who calls, in a process that TestListenGroup starts as somebody else.
func TestMain(m *testing.M) {
	path := os.Getenv("SOCKET_TEST_CALL")
	if path == "" {
		os.Exit(m.Run())
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		fmt.Fprint(os.Stderr, err)
		os.Exit(1)
	}
	_, _ = io.Copy(os.Stdout, c) // an end by reset says nothing
}
