// Package socket makes the unix sockets that an agent answers on, and puts them back.
package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/pulse"
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
	// lookEvery is how often a Socket looks whether it is still there.
	lookEvery = time.Second
)

// Socket is a net.Listener of a unix socket for root only, or for a group as well. Whoever removes its file gets another one.
type Socket struct {
	path   string
	dir    fs.FileMode
	group  int // whose members reach it too; 0: nobody
	conns  chan net.Conn
	done   chan struct{} // closed by Close
	kept   chan struct{} // closed when keep has returned
	tasks  sync.WaitGroup
	guests guests // of a group's socket
	close  sync.Once

	mu      sync.Mutex
	at      *net.UnixListener
	file    fs.FileInfo // the socket's, as it was made
	trouble error
}

// Listen makes the unix socket at path for root only, and its directory with the mode
// dir. A socket that nobody answers on (its agent was killed) is replaced; of one that
// is answered for three seconds the error is ErrAnswered.
func Listen(ctx context.Context, path string, dir fs.FileMode) (*Socket, error) {
	return listen(ctx, path, dir, 0, answerWait)
}

// ListenGroup makes a socket that the members of a group reach as well. The kernel says who calls: to give
// the socket to a group would take a capability that the agent has not. So its directory is everybody's to
// pass through, and not to look into, and what else is in it must be root's by its own mode.
func ListenGroup(ctx context.Context, path string, group int) (*Socket, error) {
	return listen(ctx, path, 0o711, group, answerWait)
}

func listen(ctx context.Context, path string, dir fs.FileMode, group int, wait time.Duration) (*Socket, error) {
	s := &Socket{path: path, dir: dir, group: group, conns: make(chan net.Conn), done: make(chan struct{}), kept: make(chan struct{})}
	if err := awaitSilence(ctx, path, wait); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	switch st, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("look for an old socket: %w", err)
	case st.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("listen on %s: it exists and is no socket; remove it", path)
	}
	if err := s.open(); err != nil {
		return nil, err
	}
	go s.keep()
	return s, nil
}

// open makes the socket, in place of one that is there.
func (s *Socket) open() error {
	parent := filepath.Dir(s.path)
	if err := os.MkdirAll(parent, s.dir); err != nil {
		return fmt.Errorf("make the directory of socket %s: %w", s.path, err)
	}
	if s.group != 0 {
		if err := os.Chmod(parent, s.dir); err != nil {
			return fmt.Errorf("let others than root reach socket %s: %w", s.path, err)
		}
	}
	l, err := closed(parent, s.path, s.group != 0)
	if err != nil {
		return fmt.Errorf("open the agent's socket: %w; the agent must run as root, and the directory be writable", err)
	}
	file, err := os.Lstat(s.path)
	if err != nil {
		_ = l.Close()
		return fmt.Errorf("open the agent's socket: %w", err)
	}
	s.mu.Lock()
	old := s.at
	s.at, s.file, s.trouble = l, file, nil
	s.mu.Unlock()
	if old != nil {
		_ = old.Close() // nobody can reach it any more
	}
	s.tasks.Go(func() { s.accept(l) })
	return nil
}

// closed makes a socket in a directory for root only, whence it is moved to path: it is never open to
// others, not for a moment.
func closed(parent, path string, others bool) (*net.UnixListener, error) {
	return moved(parent, path, others, os.Rename)
}

// Claim makes a socket for root only where nothing is: if something is, the error is fs.ErrExist. It stays when the listener is closed.
func Claim(path string) (*net.UnixListener, error) {
	return moved(filepath.Dir(path), path, false, os.Link)
}

func moved(parent, path string, others bool, move func(from, to string) error) (*net.UnixListener, error) {
	room, err := os.MkdirTemp(parent, ".new-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(room)
	at := filepath.Join(room, filepath.Base(path)) // the name that `ss` shows
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: at})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	mode := os.FileMode(0o600)
	if others { // whom accept looks at
		mode = 0o666
	}
	if err = os.Chmod(at, mode); err == nil {
		err = move(at, path)
	}
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// accept hands on who calls, until l is closed.
func (s *Socket) accept(l *net.UnixListener) {
	for {
		var c net.Conn
		caller, err := l.AcceptUnix()
		switch {
		case err == nil && s.group == 0:
			c = caller
		case err == nil:
			user, ok := admitted(caller, s.group)
			if !ok {
				_ = caller.Close()
				continue
			}
			c = s.guests.enter(caller, user)
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // there are too many open files: those who call wait
			select {
			case <-time.After(answerEvery):
			case <-s.done:
				return
			}
			continue
		}
		select {
		case s.conns <- c:
		case <-s.done:
			_ = c.Close()
			return
		}
	}
}

// keep puts the socket back until Close.
func (s *Socket) keep() {
	defer close(s.kept)
	for {
		select {
		case <-s.done:
			return
		case <-pulse.After(lookEvery):
		}
		if err := s.look(); err != nil {
			s.mu.Lock()
			s.trouble = err
			s.mu.Unlock()
		}
	}
}

// look makes the socket anew if it is gone.
func (s *Socket) look() error {
	there, ours, err := s.is()
	switch {
	case err != nil:
		return fmt.Errorf("look for the socket %s: %w", s.path, err)
	case ours:
		return nil
	case there:
		return fmt.Errorf("something else is where the socket %s was", s.path)
	}
	return s.open()
}

// is says what is at the socket's path.
func (s *Socket) is() (there, ours bool, err error) {
	st, err := os.Lstat(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return err == nil, err == nil && os.SameFile(st, s.file), err
}

// Trouble is why nobody can call, nil if somebody can.
func (s *Socket) Trouble() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trouble
}

// Accept implements net.Listener.
func (s *Socket) Accept() (net.Conn, error) { return s.acceptUntil(nil) }

func (s *Socket) acceptUntil(over <-chan struct{}) (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-over:
	case <-s.done:
	}
	return nil, net.ErrClosed
}

// Addr implements net.Listener.
func (s *Socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

// Close implements net.Listener. The file goes with it.
func (s *Socket) Close() error {
	var err error
	s.close.Do(func() {
		close(s.done)
		<-s.kept
		if _, ours, _ := s.is(); ours {
			err = os.Remove(s.path)
		}
		s.mu.Lock()
		l := s.at
		s.mu.Unlock()
		err = errors.Join(err, l.Close())
		s.tasks.Wait()
	})
	return err
}

// Lend gives the socket to somebody who serves on it for a while. Closing the listener that it returns ends that
// listener's Accept and leaves the socket open. A client that connects then waits until somebody serves again.
func (s *Socket) Lend() net.Listener { return &lent{Socket: s, over: make(chan struct{})} }

type lent struct {
	*Socket
	over chan struct{}
	once sync.Once
}

// Accept implements net.Listener.
func (l *lent) Accept() (net.Conn, error) {
	select {
	case <-l.over:
		return nil, net.ErrClosed
	default:
		return l.acceptUntil(l.over)
	}
}

// Close implements net.Listener.
func (l *lent) Close() error {
	l.once.Do(func() { close(l.over) })
	return nil
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
