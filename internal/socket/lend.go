package socket

import (
	"net"
	"sync/atomic"
	"time"
)

// Lend gives a listener of Listen to somebody who serves on it for a while: its Close ends
// Accept, and leaves the socket open. Who calls then waits for the next one to serve.
func Lend(l net.Listener) net.Listener {
	unix, ok := l.(*net.UnixListener)
	if !ok {
		return l
	}
	_ = unix.SetDeadline(time.Time{}) // fails if it is closed, and then so does Accept
	return &lent{UnixListener: unix}
}

type lent struct {
	*net.UnixListener
	over atomic.Bool
}

// Accept implements net.Listener.
func (l *lent) Accept() (net.Conn, error) {
	c, err := l.UnixListener.Accept()
	if err != nil && l.over.Load() {
		return nil, net.ErrClosed // a timeout would be tried again
	}
	return c, err
}

// Close implements net.Listener.
func (l *lent) Close() error {
	l.over.Store(true)
	return l.SetDeadline(time.Unix(1, 0))
}
