package link

import (
	"errors"
	"io/fs"
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
