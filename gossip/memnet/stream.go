package memnet

import (
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// window is how much a stream holds in flight before a writer waits.
const window = 256 << 10

type timeoutError struct{}

func (timeoutError) Error() string   { return "i/o timeout" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

// half is one direction of a stream: segments with the time of their arrival.
type half struct {
	net      *Network
	from, to netip.Addr

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at every change
	segments []segment
	held     int  // bytes in segments
	eof      bool // the writer has closed
	broken   bool // the reader has closed
	readBy   time.Time
	writeBy  time.Time
}

type segment struct {
	at   time.Time
	data []byte
}

// conn is one end of a stream.
type conn struct {
	in, out       *half
	local, remote net.Addr
}

func (n *Network) pipe(a, b netip.AddrPort) (net.Conn, net.Conn) {
	ab := &half{net: n, from: a.Addr(), to: b.Addr(), changed: make(chan struct{})}
	ba := &half{net: n, from: b.Addr(), to: a.Addr(), changed: make(chan struct{})}
	la, lb := net.TCPAddrFromAddrPort(a), net.TCPAddrFromAddrPort(b)
	return &conn{in: ba, out: ab, local: la, remote: lb}, &conn{in: ab, out: ba, local: lb, remote: la}
}

// update changes the half and wakes who waits on it.
func (h *half) update(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	close(h.changed)
	h.changed = make(chan struct{})
}

// wait returns when something of the half or the network has changed, at the
// moment until (if set), or with an error at the deadline (if set).
func (h *half) wait(changed, network <-chan struct{}, until, deadline time.Time) error {
	wake := until
	if wake.IsZero() || (!deadline.IsZero() && deadline.Before(wake)) {
		wake = deadline
	}
	var timer <-chan time.Time
	if !wake.IsZero() {
		t := time.NewTimer(time.Until(wake))
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-changed:
	case <-network:
	case <-timer:
		if !deadline.IsZero() && !time.Now().Before(deadline) {
			return os.ErrDeadlineExceeded
		}
	}
	return nil
}

func (h *half) write(b []byte) (int, error) {
	written := 0
	for written < len(b) {
		up, network := h.net.up(h.from, h.to)
		h.mu.Lock()
		changed, deadline, room := h.changed, h.writeBy, window-h.held
		closed := h.eof || h.broken
		h.mu.Unlock()
		switch {
		case closed:
			return written, io.ErrClosedPipe
		case !deadline.IsZero() && !time.Now().Before(deadline):
			return written, os.ErrDeadlineExceeded
		case up && room > 0:
			k := min(room, len(b)-written)
			h.push(append([]byte(nil), b[written:written+k]...))
			written += k
		default:
			if err := h.wait(changed, network, time.Time{}, deadline); err != nil {
				return written, err
			}
		}
	}
	return written, nil
}

// push appends a segment; it never arrives before the ones before it.
func (h *half) push(data []byte) {
	h.net.mu.Lock()
	link := h.net.linkLocked(h.from, h.to)
	at := time.Now().Add(h.net.delayLocked(link))
	for again := segmentAgain; h.net.chance(link.Loss); again *= 2 {
		at = at.Add(again)
	}
	h.net.traffic.StreamBytes += uint64(len(data))
	h.net.mu.Unlock()
	h.update(func() {
		if k := len(h.segments); k > 0 && h.segments[k-1].at.After(at) {
			at = h.segments[k-1].at
		}
		h.segments = append(h.segments, segment{at, data})
		h.held += len(data)
	})
}

func (h *half) read(b []byte) (int, error) {
	for {
		h.mu.Lock()
		changed, deadline := h.changed, h.readBy
		var next time.Time
		if len(h.segments) > 0 {
			next = h.segments[0].at
		}
		ended, broken := h.eof && len(h.segments) == 0, h.broken
		h.mu.Unlock()
		now := time.Now()
		switch {
		case broken:
			return 0, net.ErrClosed
		case !deadline.IsZero() && !now.Before(deadline):
			return 0, os.ErrDeadlineExceeded
		case !next.IsZero() && !now.Before(next):
			return h.take(b), nil
		case ended:
			return 0, io.EOF
		}
		if err := h.wait(changed, nil, next, deadline); err != nil {
			return 0, err
		}
	}
}

// take moves what fits of the first segment into b.
func (h *half) take(b []byte) (k int) {
	h.update(func() {
		if len(h.segments) == 0 {
			return
		}
		s := &h.segments[0]
		k = copy(b, s.data)
		h.held -= k
		if s.data = s.data[k:]; len(s.data) == 0 {
			h.segments = h.segments[1:]
		}
	})
	return k
}

func (c *conn) Read(b []byte) (int, error)  { return c.in.read(b) }
func (c *conn) Write(b []byte) (int, error) { return c.out.write(b) }
func (c *conn) LocalAddr() net.Addr         { return c.local }
func (c *conn) RemoteAddr() net.Addr        { return c.remote }

// Close ends both directions. What was written before still arrives.
func (c *conn) Close() error {
	c.out.update(func() { c.out.eof = true })
	c.in.update(func() { c.in.broken = true })
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.update(func() { c.in.readBy = t })
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.update(func() { c.out.writeBy = t })
	return nil
}

func (c *conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}
