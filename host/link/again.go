package link

import (
	"bytes"
	"errors"
	"io/fs"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ReadAgain is os.ReadFile for files of /proc that are read again and again: it costs a third, since Go's scheduler is not told of the
// file. It is for files that never make their reader wait.
func ReadAgain(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	b := make([]byte, 0, 512)
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		switch n, err := unix.Read(fd, b[len(b):cap(b)]); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		case n == 0:
			return b, nil
		default:
			b = b[:len(b)+n]
		}
	}
}

// Held is a file of /proc that is read again and again, and stays open: to open it takes most of the time that reading it takes. It is
// of the namespace in which it was read first. What cannot be read is opened anew, as what is of an interface that has gone and come again.
type Held struct {
	path string
	mu   sync.Mutex
	fd   int
	open bool
	room [512]byte // more is read by ReadAgain
}

// NewHeld opens nothing yet. The caller closes it.
func NewHeld(path string) *Held { return &Held{path: path} }

// Read is what the file has now.
func (h *Held) Read() ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open {
		if b, err := h.read(); err == nil {
			return b, nil
		}
		h.close()
	}
	fd, err := unix.Open(h.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: h.path, Err: err}
	}
	h.fd, h.open = fd, true
	b, err := h.read()
	if err != nil {
		h.close()
	}
	return b, err
}

func (h *Held) read() ([]byte, error) {
	for at := 0; ; {
		n, err := unix.Pread(h.fd, h.room[at:], int64(at))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: h.path, Err: err}
		case n == 0:
			return bytes.Clone(h.room[:at]), nil
		default:
			if at += n; at == len(h.room) {
				return ReadAgain(h.path)
			}
		}
	}
}

// Close closes the file. It may be read again.
func (h *Held) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.close()
}

func (h *Held) close() {
	if h.open {
		_ = unix.Close(h.fd)
		h.open = false
	}
}

// News says whether it is worth looking again at what the kernel tells changes of: one system call, where a look is dozens. Nobody
// is woken by a change. It belongs to one goroutine.
type News struct {
	fd     int
	open   bool
	looked time.Time
	kinds  []Kind
}

// newsAtLatest is after how long it is worth looking anyway.
const newsAtLatest = 30 * time.Second

// NewNews is of these kinds, in the namespace in which it is asked first. Any says yes where the kernel tells nothing. The caller closes it.
func NewNews(kinds ...Kind) *News { return &News{kinds: kinds} }

// Any reports whether something may have changed since it was asked last.
func (n *News) Any(now time.Time) bool {
	if !n.open {
		fd, err := subscribe(n.kinds, 0)
		if err != nil {
			return true
		}
		n.fd, n.open, n.looked = fd, true, now
		return true
	}
	some := now.Sub(n.looked) >= newsAtLatest
	buf := make([]byte, 64) // what has changed does not matter: messages are cut
	for read := 0; ; read++ {
		_, _, err := unix.Recvfrom(n.fd, buf, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if some = true; err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR) || read > 1<<16 {
			n.Close()
			break
		}
	}
	if some {
		n.looked = now
	}
	return some
}

// Close ends it. It may be asked again: then it begins anew.
func (n *News) Close() {
	if n.open {
		_ = unix.Close(n.fd)
		n.open = false
	}
}
