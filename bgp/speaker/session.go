package speaker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/grapevine-net/grapevine/bgp"
	"github.com/grapevine-net/grapevine/config"
)

// Times.
const (
	greeting = 10 * time.Second // for a connection, and for each of the first words
	stuck    = 10 * time.Second // a router may take for what is written
	soon     = time.Second      // until it is called again
	late     = 15 * time.Second // at most
	lasting  = 10 * time.Second // a session that ends before has been none
	anew     = 5 * time.Second  // from one time that a router is told all again to the next
)

// peer is the session with one router, over and over again.
type peer struct {
	of     *Speaker
	router config.Router
	over   chan struct{} // closed when run has returned
	log    *slog.Logger

	mu   sync.Mutex
	now  Session
	gone time.Time // when the last session that lasted ended
}

func (p *peer) run(ctx context.Context) {
	defer close(p.over)
	pause := soon
	for {
		err := p.session(ctx)
		if ctx.Err() != nil || p.ended() {
			return
		}
		if p.down(err) {
			pause = soon
		}
		select {
		case <-ctx.Done():
			return
		case <-p.of.ended:
			return
		case <-time.After(pause):
			pause = min(2*pause, late)
		}
	}
}

func (p *peer) ended() bool {
	select {
	case <-p.of.ended:
		return true
	default:
		return false
	}
}

// down notes that there is no session, and reports whether one has lasted: a router that takes each call and ends it soon is
// one without a session all the while.
func (p *peer) down(err error) (lasted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.now.Up
	if was {
		if lasted = time.Since(p.now.Since) > lasting; lasted {
			p.gone = time.Now()
		}
		p.now.Up, p.now.Since, p.now.Told, p.now.Unsaid, p.now.Local = false, p.gone, 0, nil, netip.Addr{}
	}
	if was || p.now.Err != err.Error() {
		p.log.Warn("no session with the router", "err", err)
	}
	p.now.Err = err.Error()
	return lasted
}

func (p *peer) up(a agreed, local net.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = Session{Router: p.router, Up: true, Since: time.Now(), Keeps: a.keeps}
	if tcp, is := local.(*net.TCPAddr); is {
		p.now.Local = tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	p.log.Info("the router is told which addresses are here", "keeps", a.keeps)
}

// session is one, from the call to its end. It returns why it ended.
func (p *peer) session(ctx context.Context) error {
	conn, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // without a word
	a, err := p.greet(conn)
	if err == nil {
		p.up(a, conn.LocalAddr())
		err = p.keep(conn, a)
	}
	if r, ok := errors.AsType[*refusal](err); ok {
		_ = send(conn, packet.NewBGPNotificationMessage(r.code, r.sub, nil))
	}
	return err
}

// greet says and hears the first words.
func (p *peer) greet(conn net.Conn) (a agreed, err error) {
	hello, err := open(p.router, p.of.cfg.ID)
	if err != nil {
		return a, err
	}
	if err := send(conn, hello); err != nil {
		return a, err
	}
	if err := conn.SetReadDeadline(time.Now().Add(greeting)); err != nil {
		return a, err
	}
	m, err := receive(conn)
	if err != nil {
		return a, fmt.Errorf("hear who the router is: %w", err)
	}
	switch body := m.Body.(type) {
	case *packet.BGPOpen:
		a, err = agree(p.router, body)
	case *packet.BGPNotification:
		err = notified(body)
	default:
		err = refuse(packet.BGP_ERROR_FSM_ERROR, 0, "it does not begin with who it is")
	}
	if err != nil {
		return a, err
	}
	if err := send(conn, packet.NewBGPKeepAliveMessage()); err != nil {
		return a, err
	}
	m, err = receive(conn)
	if err != nil {
		return a, fmt.Errorf("hear whether the router agrees: %w", err)
	}
	switch body := m.Body.(type) {
	case *packet.BGPKeepAlive:
	case *packet.BGPNotification:
		err = notified(body)
	default:
		err = refuse(packet.BGP_ERROR_FSM_ERROR, 0, "it says something else than that it agrees")
	}
	return a, errors.Join(err, conn.SetReadDeadline(time.Time{}))
}

// keep tells the router what it is to know, and each change, for as long as both hear each other.
func (p *peer) keep(conn net.Conn, a agreed) error {
	h := hopsOf(conn.LocalAddr())
	heard, done := make(chan heard), make(chan struct{})
	defer close(done)
	go hear(conn, heard, done)
	alive, silent := time.NewTicker(a.hold/3), time.NewTimer(a.hold)
	defer alive.Stop()
	defer silent.Stop()
	told := map[netip.Prefix]bgp.Route{}
	var changed <-chan struct{}
	var again <-chan time.Time // the router waits to be told all again
	var asked time.Time        // it was last
	for first, look := true, true; ; first = false {
		if look {
			var want map[netip.Prefix]bgp.Route
			want, changed = p.of.wanted()
			if err := p.tell(conn, a, h, told, want); err != nil {
				return err
			}
		}
		for _, f := range a.families {
			if first { // the router may drop what it has kept, and was not told again
				if err := send(conn, packet.NewEndOfRib(f)); err != nil {
					return err
				}
			}
		}
		look = true
		select {
		case <-p.of.ended:
			return refuse(packet.BGP_ERROR_CEASE, packet.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN, "this host leaves")
		case <-changed:
		case <-alive.C:
			h = renewed(told, h, hopsOf(conn.LocalAddr()))
			if err := send(conn, packet.NewBGPKeepAliveMessage()); err != nil {
				return err
			}
		case <-silent.C:
			return refuse(packet.BGP_ERROR_HOLD_TIMER_EXPIRED, 0, "the router has said nothing for %v", a.hold)
		case x := <-heard:
			if x.err != nil {
				return x.err
			}
			silent.Reset(a.hold)
			if look = false; x.again && again == nil { // what it says else changes nothing that it is to know
				again = time.After(anew - time.Since(asked))
			}
		case <-again: // however often it has asked meanwhile
			again, asked = nil, time.Now()
			clear(told)
		}
	}
}

// renewed returns the addresses that packets are to be sent to from now on, and has what was told of others told anew.
func renewed(told map[netip.Prefix]bgp.Route, was, now hops) hops {
	for p, r := range told {
		if f := familyOf(p); was.of(f) != now.of(f) {
			r.Rank = ^r.Rank // as if it had been another route
			told[p] = r
		}
	}
	return now
}

// tell makes of what the router was told what it is to know.
func (p *peer) tell(conn net.Conn, a agreed, h hops, told, all map[netip.Prefix]bgp.Route) error {
	want := map[netip.Prefix]bgp.Route{}
	unsaid := map[packet.Family]int{}
	for prefix, route := range all {
		if f := familyOf(prefix); a.sayable(f, h) == "" {
			want[prefix] = route
		} else {
			unsaid[f]++
		}
	}
	list, err := updates(p.router, told, want, h)
	for _, m := range list {
		if err == nil {
			err = send(conn, m)
		}
	}
	if err != nil {
		return err
	}
	clear(told)
	maps.Copy(told, want)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.Told, p.now.Unsaid = len(told), nil
	for _, f := range families {
		if n := unsaid[f]; n > 0 {
			p.now.Unsaid = append(p.now.Unsaid, a.sayable(f, h))
		}
	}
	return nil
}

// heard is what a router says while a session is up.
type heard struct {
	again bool // it wants to be told all again (RFC 2918)
	err   error
}

// hear reads until the connection ends. What a router says of routes is not even looked at.
func hear(conn net.Conn, to chan<- heard, done <-chan struct{}) {
	for {
		var x heard
		m, err := receive(conn)
		if err == nil {
			switch body := m.Body.(type) {
			case *packet.BGPNotification:
				err = notified(body)
			case *packet.BGPOpen:
				err = refuse(packet.BGP_ERROR_FSM_ERROR, 0, "it says who it is twice")
			}
			x.again = m.Header.Type == packet.BGP_MSG_ROUTE_REFRESH
		}
		x.err = err
		select {
		case to <- x:
		case <-done:
			return
		}
		if err != nil {
			return
		}
	}
}

func send(conn net.Conn, m *packet.BGPMessage) error {
	b, err := m.Serialize()
	if err == nil {
		err = conn.SetWriteDeadline(time.Now().Add(stuck))
	}
	if err == nil {
		_, err = conn.Write(b)
	}
	if err != nil {
		return fmt.Errorf("write to the router: %w", err)
	}
	return nil
}

// receive reads one message. Of one that is about routes it has the header alone.
func receive(r io.Reader) (*packet.BGPMessage, error) {
	const largest = 4096
	var buf [largest]byte
	head := buf[:packet.BGP_HEADER_LENGTH]
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, ending(err)
	}
	var h packet.BGPHeader
	if err := h.DecodeFromBytes(head); err != nil || h.Len > largest {
		return nil, refuse(packet.BGP_ERROR_MESSAGE_HEADER_ERROR, packet.BGP_ERROR_SUB_CONNECTION_NOT_SYNCHRONIZED, "it does not speak BGP")
	}
	body := buf[packet.BGP_HEADER_LENGTH:h.Len]
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, ending(err)
	}
	switch h.Type {
	case packet.BGP_MSG_OPEN, packet.BGP_MSG_NOTIFICATION, packet.BGP_MSG_KEEPALIVE:
		m, err := packet.ParseBGPBody(&h, body)
		if err != nil {
			return nil, refuse(packet.BGP_ERROR_MESSAGE_HEADER_ERROR, packet.BGP_ERROR_SUB_BAD_MESSAGE_LENGTH, "what it says cannot be read: %w", err)
		}
		return m, nil
	case packet.BGP_MSG_UPDATE, packet.BGP_MSG_ROUTE_REFRESH:
		return &packet.BGPMessage{Header: h}, nil
	}
	return nil, refuse(packet.BGP_ERROR_MESSAGE_HEADER_ERROR, packet.BGP_ERROR_SUB_BAD_MESSAGE_TYPE, "it says something of type %d, which there is not", h.Type)
}

// ending says in words how a connection ended.
func ending(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the router closed the connection")
	}
	return err
}
