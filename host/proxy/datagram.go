package proxy

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// idle is after how long without a datagram a client of UDP is forgotten, as conntrack does.
const idle = 90 * time.Second

// client is who sends to a port of UDP, at one of the host's addresses.
type client struct {
	port
	from  netip.AddrPort
	index uint32 // of the interface to answer by, for one with a link-local address
	local netip.Addr
}

// clients are those that are served, and the sockets by which the containers see them.
type clients struct {
	mu   sync.Mutex
	most int
	by   map[client]*session
	all  crowd[client]
	done bool
}

type session struct {
	conn *net.UDPConn
	last time.Time
}

func newClients(most int) *clients {
	return &clients{most: most, by: map[client]*session{}, all: newCrowd[client]()}
}

// buffers are of the size of the largest datagram; nobody has one while he waits.
var buffers = sync.Pool{New: func() any { return new([65535]byte) }}

// receive takes datagrams from a port's clients to the container.
func (s *Server) receive(p serving) {
	b := buffers.Get().(*[65535]byte)
	defer buffers.Put(b)
	var oob [128]byte
	for range batch {
		var n, on int
		var from unix.Sockaddr
		found, err := s.sockets.With(p.network, p.at, func(fd int) (err error) {
			n, on, _, from, err = unix.Recvmsg(fd, b[:], oob[:], unix.MSG_DONTWAIT)
			return err
		})
		if !found || err != nil {
			return
		}
		c, by, ok := whose(p.port, from, oob[:on])
		if !ok || s.refuse(c.from.Addr(), by) {
			continue
		}
		if conn := s.find(c, p.to); conn != nil {
			_, _ = conn.Write(b[:n])
		}
	}
}

// whose reads who sent a datagram, to which address, and the index of the interface it came by.
func whose(p port, from unix.Sockaddr, oob []byte) (c client, by int, ok bool) {
	sa, ok := from.(*unix.SockaddrInet6)
	if !ok {
		return c, 0, false
	}
	c = client{port: p, from: addrOf(sa)}
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return c, 0, false
	}
	for _, m := range list {
		if m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo {
			c.local = netip.AddrFrom16([16]byte(m.Data[:16]))
			if c.from.Addr().IsLinkLocalUnicast() {
				c.index = sa.ZoneId
			}
			return c, int(binary.NativeEndian.Uint32(m.Data[16:])), true
		}
	}
	return c, 0, false
}

// find returns the socket by which the container sees a client; nil: none can be had.
func (s *Server) find(c client, to netip.AddrPort) net.Conn {
	l := s.clients
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if known := l.by[c]; known != nil {
		known.last = now
		return known.conn
	}
	if l.done {
		return nil
	}
	if len(l.by) >= l.most {
		l.end(l.all.goes(func(a, b client) bool { return l.by[a].last.Before(l.by[b].last) }))
	}
	conn, err := s.dial(context.Background(), "udp", to, false) // whom a datagram is of nobody can tell
	if err != nil {
		return nil
	}
	fresh := &session{conn.(*net.UDPConn), now}
	l.by[c] = fresh
	l.all.enter(c, c.from.Addr())
	go listen(fresh.conn, func(b []byte) {
		l.mu.Lock()
		fresh.last = time.Now()
		l.mu.Unlock()
		s.answer(c, b)
	})
	return conn
}

func (l *clients) end(c client) {
	_ = l.by[c].conn.Close()
	delete(l.by, c)
	l.all.leave(c)
}

// expire ends who has been silent for too long.
func (l *clients) expire(now time.Time) {
	l.endIf(func(_ client, s *session) bool { return now.Sub(s.last) > idle })
}

// drop ends the clients of a port.
func (l *clients) drop(p port) {
	l.endIf(func(c client, _ *session) bool { return c.port == p })
}

func (l *clients) endIf(is func(client, *session) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c, s := range l.by {
		if is(c, s) {
			l.end(c)
		}
	}
}

func (l *clients) close() {
	l.endIf(func(client, *session) bool { return true })
	l.mu.Lock()
	l.done = true
	l.mu.Unlock()
}

// listen hands over what the container answers until conn is closed. It waits without a buffer.
func listen(conn *net.UDPConn, to func([]byte)) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	for {
		b := (*[65535]byte)(nil)
		var n int
		var rerr error
		err := raw.Read(func(fd uintptr) bool {
			b = buffers.Get().(*[65535]byte)
			n, _, rerr = unix.Recvfrom(int(fd), b[:], unix.MSG_DONTWAIT)
			if rerr == unix.EAGAIN {
				buffers.Put(b)
				b = nil
			}
			return rerr != unix.EAGAIN
		})
		if err == nil && rerr == nil {
			to(b[:n])
		}
		if b != nil {
			buffers.Put(b)
		}
		if err != nil {
			return
		}
	}
}

// answer sends a client what the container says, from the address that the client asked.
func (s *Server) answer(c client, b []byte) {
	_, _ = s.sockets.With(c.network, c.at, func(fd int) error {
		info := unix.Inet6Pktinfo{Addr: c.local.As16(), Ifindex: c.index}
		return unix.Sendmsg(fd, b, unix.PktInfo6(&info), &unix.SockaddrInet6{Port: int(c.from.Port()), ZoneId: c.index, Addr: c.from.Addr().As16()}, unix.MSG_DONTWAIT)
	})
}
