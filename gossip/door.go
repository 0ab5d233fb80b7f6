package gossip

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// errCrowded ends a stream for which there is no room.
var errCrowded = errors.New("too many streams of hosts that have not shown the key")

const (
	trustMemory = time.Hour // for which a place counts where somebody has shown the key
	maxTrusted  = 4096      // such places
	peersFresh  = time.Second
	maxRefusals = 16 // streams at once whose message no key opens, and that are told so
)

// door is where streams come in: it reads the message of each, and lets those through to
// memberlist that a key opens.
type door struct {
	*core
	roster   *roster
	keyring  *keyring
	guests   *guests
	opener   *opener
	refusals chan struct{}
	beats    func(b []byte, pushPull bool) // where an envelope with a beat goes: inbox.receive

	mu      sync.Mutex
	trusted map[netip.Addr]time.Time // since when
	peers   map[netip.Addr]struct{}  // where hosts of the cluster are, as of looked
	looked  time.Time
}

func newDoor(c *core, r *roster, k *keyring) *door {
	return &door{
		core: c, roster: r, keyring: k, guests: newGuests(), opener: newOpener(), refusals: make(chan struct{}, maxRefusals),
		trusted: map[netip.Addr]time.Time{},
	}
}

// knows reports whether an address is one of the cluster's.
func (d *door) knows(a netip.Addr) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if since, ok := d.trusted[a]; ok && now.Sub(since) < trustMemory {
		return true
	}
	if d.peers == nil || now.Sub(d.looked) > peersFresh {
		d.peers, d.looked = d.roster.places(), now
	}
	_, ok := d.peers[a]
	return ok
}

func (d *door) trust(a netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.trusted) >= maxTrusted {
		clear(d.trusted) // they show the key again, with their next message
	}
	d.trusted[a] = time.Now()
}

// greet takes a stream's sender in, and whoever has to go for it is out when it returns: who lets streams in greets one
// after the other, so that no more of them are open than there may be guests, however fast they come.
func (d *door) greet(c net.Conn, dialed bool) *guest {
	addr := addressOf(c)
	g := &guest{source: sourceOf(addr), evict: func() { abort(c) }}
	if dialed || d.knows(addr) {
		g.class = known
	}
	if d.guests.enter(g) {
		d.stats.add(LostBusy, 1)
	}
	return g
}

// receive reads the message of a stream, within what its sender is allowed, and returns what
// memberlist is to see: the message if a key opens it, and else as little of it as tells why
// not. It blocks until then, and the guest has left.
func (d *door) receive(c net.Conn, g *guest, dialed bool) (frame []byte, opened bool, err error) {
	addr, may := addressOf(c), allowances[g.class]
	defer d.guests.leave(g)
	if !dialed { // who dials has set a deadline of its own
		began := time.Now()
		_ = c.SetReadDeadline(began.Add(may.head))
		c = &headed{Conn: c, deadline: began.Add(may.time)}
	}
	frame, whole, err := readFrame(c, may.frame, func(n int) bool { return d.guests.grow(g, n) })
	switch {
	case err != nil:
		return nil, false, err
	case !whole && len(frame) == frameHead && may.frame < maxFrame:
		d.stats.add(RefusedSize, 1)
		return nil, false, errCrowded
	case !whole:
		return frame, false, nil
	case !d.opener.opensFrame(d.keyring.opening(), frame):
		return stub(frame), false, nil
	}
	d.trust(addr)
	return frame, true, nil
}

// headed gives a stream more time once the first bytes have come.
type headed struct {
	net.Conn
	deadline time.Time
	read     int
}

func (h *headed) Read(b []byte) (int, error) {
	n, err := h.Conn.Read(b)
	if h.read < frameHead && h.read+n >= frameHead {
		_ = h.SetReadDeadline(h.deadline)
	}
	h.read += n
	return n, err
}

// admit brings a stream from its opening to memberlist, or ends it. Those that memberlist is
// at work for are bounded, too: beyond that they wait, since a burst of calls is over in
// milliseconds, and only if that lasts is one closed.
func (t *transport) admit(ctx context.Context, s *stream, g *guest) {
	frame, opened, err := t.door.receive(s.Conn, g, false)
	if err != nil {
		if !errors.Is(err, io.EOF) { // who opens a stream and says nothing harms nobody
			t.door.log.Debug("a stream ends before its message does", "from", s.RemoteAddr(), "err", err)
		}
		abort(s.Conn)
		_ = s.Close()
		return
	}
	s.rest, s.loaded = frame, true
	slots, patience := t.slots, streamWait
	if !opened {
		slots, patience = t.door.refusals, 0
	}
	if !take(ctx, slots, patience) {
		_ = s.Close()
		t.door.stats.add(LostBusy, 1)
		return
	}
	s.slots = slots
	select {
	case t.streams <- s:
	case <-ctx.Done():
		_ = s.Close()
	}
}

// take takes a slot, and waits for it as long as is said.
func take(ctx context.Context, slots chan struct{}, patience time.Duration) bool {
	select {
	case slots <- struct{}{}:
		return true
	default:
	}
	if patience == 0 {
		return false
	}
	expired := time.NewTimer(patience)
	defer expired.Stop()
	select {
	case slots <- struct{}{}:
		return true
	case <-ctx.Done():
	case <-expired.C:
	}
	return false
}

func addressOf(c net.Conn) netip.Addr {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}

// abort closes a stream without a trace in the kernel, which would else keep it for a while.
func abort(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
