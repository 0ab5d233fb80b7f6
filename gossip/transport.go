package gossip

import (
	"context"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	maxStreams = 256         // streams from others that memberlist is at work for at once
	streamWait = time.Second // for one to end when another comes, before that is closed

	maxDials  = 3                      // to one host at once, for one stream
	dialAgain = 300 * time.Millisecond // without an answer, between two
)

// transport wraps memberlist's.
//   - It bounds the time of dials and of streams: a write of memberlist's to a host that is
//     cut off would else hang for as long as TCP retries.
//   - It bounds the number of streams.
//   - It shows memberlist only what a key opens (door.go).
//   - It sends nothing to hosts of another cluster.
//   - At its end it closes all streams, so that nobody waits on one.
type transport struct {
	memberlist.Transport
	door    *door
	roster  *roster
	dialer  func(ctx context.Context, addr string) (net.Conn, error) // nil: Transport's
	streams chan net.Conn
	packets chan *memberlist.Packet // nil: Transport's
	slots   chan struct{}           // one held by each stream from others
	work    tasks

	mu   sync.Mutex
	open map[*stream]struct{}
}

// stream is a tracked connection, of which memberlist reads one message.
type stream struct {
	net.Conn
	t      *transport
	slots  chan struct{} // of which it holds one; nil: none
	rest   []byte        // of the message that has come, if loaded
	loaded bool
	once   sync.Once
}

var _ memberlist.NodeAwareTransport = (*transport)(nil)

func newTransport(d *door, inner memberlist.Transport) *transport {
	t := &transport{
		Transport: inner, door: d, roster: d.roster, streams: make(chan net.Conn), slots: make(chan struct{}, maxStreams),
		work: newTasks(), open: map[*stream]struct{}{},
	}
	t.work.spawn(t.accept)
	if s, ok := inner.(*sockets); ok {
		t.dialer = func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{KeepAlive: unkept}).DialContext(ctx, "tcp", addr)
		}
		s.start(newScreen(d).pass)
	} else {
		t.packets = make(chan *memberlist.Packet)
		t.work.spawn(t.sift)
	}
	return t
}

// PacketCh implements memberlist.Transport.
func (t *transport) PacketCh() <-chan *memberlist.Packet {
	if t.packets != nil {
		return t.packets
	}
	return t.Transport.PacketCh()
}

// sift hands on what memberlist is to have of the packets of Config.Transport.
func (t *transport) sift(ctx context.Context) {
	screen := newScreen(t.door)
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-t.Transport.PacketCh():
			packet, is := screen.pass(p.Buf)
			if !is {
				continue
			}
			p.Buf = packet
			select {
			case t.packets <- p:
			case <-ctx.Done():
				return
			}
		}
	}
}

// accept has each stream that others open looked at, by a goroutine of its own.
func (t *transport) accept(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-t.Transport.StreamCh():
			s := t.track(c)
			if s == nil {
				return
			}
			g := t.door.greet(s.Conn, false)
			if !t.work.spawn(func(ctx context.Context) { t.admit(ctx, s, g) }) {
				t.door.guests.leave(g)
				_ = s.Close()
				return
			}
		}
	}
}

// track counts a connection as open, or closes it and returns nil if the
// transport has ended.
func (t *transport) track(c net.Conn) *stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.work.ctx.Err() != nil {
		_ = c.Close()
		return nil
	}
	s := &stream{Conn: c, t: t}
	t.open[s] = struct{}{}
	return s
}

// Close closes the connection and forgets it.
func (s *stream) Close() error {
	s.once.Do(func() {
		s.t.mu.Lock()
		delete(s.t.open, s)
		s.t.mu.Unlock()
		if s.slots != nil {
			<-s.slots
		}
	})
	return s.Conn.Close()
}

// Read reads of the stream's one message, which of a dialed stream is the answer: nobody has
// shown there yet that he has the key, either.
func (s *stream) Read(b []byte) (int, error) {
	if !s.loaded {
		frame, _, err := s.t.door.receive(s.Conn, s.t.door.greet(s.Conn, true), true)
		if err != nil {
			return 0, err
		}
		s.rest, s.loaded = frame, true
	}
	if len(s.rest) == 0 {
		s.rest = nil
		return 0, io.EOF
	}
	n := copy(b, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// StreamCh implements memberlist.Transport.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// WriteToAddress implements memberlist.NodeAwareTransport.
func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	if t.roster.isForeign(a.Name) {
		return time.Now(), nil // as if lost: memberlist will find the host dead
	}
	return t.WriteTo(b, a.Addr)
}

// DialAddressTimeout implements memberlist.NodeAwareTransport.
func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	if t.roster.isForeign(a.Name) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: net.UnknownNetworkError("host of another cluster")}
	}
	return t.DialTimeout(a.Addr, timeout)
}

// DialTimeout implements memberlist.Transport. A lost packet of a handshake is sent again
// only after a second (RFC 6298): so where there is no answer another stream is opened
// beside the first. The first to succeed, or to be refused, counts.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(t.work.ctx, min(timeout, dialTimeout))
	defer cancel()
	type result struct {
		c   *stream
		err error
	}
	results, begun := make(chan result), 0
	open := func() {
		c, err := t.dial(ctx, addr, timeout)
		select {
		case results <- result{c, err}:
		case <-ctx.Done():
			if err == nil {
				_ = c.Close()
			}
		}
	}
	late := time.NewTimer(0)
	defer late.Stop()
	for {
		select {
		case r := <-results:
			if r.err != nil {
				return nil, r.err
			}
			return r.c, nil
		case <-ctx.Done():
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
		case <-late.C:
			if begun++; begun < maxDials {
				late.Reset(dialAgain)
			}
			if !t.work.spawn(func(context.Context) { open() }) {
				return nil, net.ErrClosed
			}
		}
	}
}

// dial opens one stream.
func (t *transport) dial(ctx context.Context, addr string, timeout time.Duration) (*stream, error) {
	var c net.Conn
	var err error
	if t.dialer == nil {
		c, err = t.Transport.DialTimeout(addr, min(timeout, dialTimeout))
	} else {
		c, err = t.dialer(ctx, addr)
	}
	if err != nil {
		return nil, err
	}
	if s := t.track(c); s != nil {
		return s, s.SetDeadline(time.Now().Add(streamTimeout))
	}
	return nil, net.ErrClosed
}

// Shutdown stops listening first: the inner transport waits for goroutines that hand streams
// to accept, which therefore ends after it, as do those who read from streams.
func (t *transport) Shutdown() error {
	err := t.Transport.Shutdown()
	t.work.cancel()
	t.mu.Lock()
	open := t.open
	t.open = map[*stream]struct{}{}
	t.mu.Unlock()
	for s := range open {
		_ = s.Conn.Close()
	}
	t.work.wait()
	return err
}
