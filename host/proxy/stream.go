package proxy

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// batch is how many clients of a port are served before those of others.
const batch = 64

// accept serves the clients that wait at a port of TCP.
func (s *Server) accept(p serving) {
	for range batch {
		var client int
		var from unix.Sockaddr
		found, err := s.sockets.With(p.network, p.at, func(fd int) (err error) {
			client, from, err = unix.Accept4(fd, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			return err
		})
		if !found || err != nil {
			return // EAGAIN: that were all; or the port was given back meanwhile
		}
		if s.refuse(addrOf(from).Addr(), arrival(client)) {
			reset(client)
			continue
		}
		v, ok := s.streams.enter(addrOf(from).Addr())
		if !ok {
			reset(client)
			continue
		}
		go func() {
			defer s.streams.leave(v)
			s.stream(v, client, p.to, itself(client, addrOf(from).Addr()))
		}()
	}
}

// arrival is the index of the interface by which a client of TCP came. Linux notes it where it has
// that of multicast (tcp_v6_syn_recv_sock, for IPV6_2292PKTOPTIONS of RFC 2292).
func arrival(client int) int {
	index, err := unix.GetsockoptInt(client, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF)
	if err != nil {
		return 0
	}
	return index
}

// streams are the connections that are served.
type streams struct {
	mu   sync.Mutex
	most int
	all  crowd[*visitor]
}

// visitor is who has a connection. ctx ends when it has to go.
type visitor struct {
	ctx context.Context
	end context.CancelFunc
}

func newStreams(most int) *streams { return &streams{most: most, all: newCrowd[*visitor]()} }

// enter takes one in if there is room, or somebody goes for it, who has more than it. What is open stays where both
// have as many.
func (s *streams) enter(from netip.Addr) (v *visitor, ok bool) {
	v = &visitor{}
	v.ctx, v.end = context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all.enter(v, from)
	if len(s.all.at) <= s.most {
		return v, true
	}
	goes := s.all.goes(func(_, _ *visitor) bool { return false })
	if s.all.more(goes, v) <= 0 {
		goes = v
	}
	s.all.leave(goes)
	goes.end()
	return v, goes != v
}

func (s *streams) leave(v *visitor) {
	s.mu.Lock()
	s.all.leave(v)
	s.mu.Unlock()
	v.end()
}

// reset ends a connection as a port does that nobody serves.
func reset(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	_ = unix.Close(fd)
}

// itself reports whether a client of TCP is this host, which calls an address of its own from
// there. Whoever else has that address does not hear the answer.
func itself(client int, from netip.Addr) bool {
	at, err := unix.Getsockname(client)
	return err == nil && addrOf(at).Addr().WithZone("") == from.WithZone("")
}

// stream carries a connection until both sides have ended, or one of them is gone, or the visitor has to go.
func (s *Server) stream(v *visitor, fd int, to netip.AddrPort, host bool) {
	container, err := s.dial(v.ctx, "tcp", to, host)
	if err != nil {
		reset(fd)
		return
	}
	defer container.Close()
	f := os.NewFile(uintptr(fd), "client")
	conn, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		return
	}
	defer conn.Close()
	client, there := conn.(*net.TCPConn), container.(*net.TCPConn)
	_ = client.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true})
	stop := context.AfterFunc(v.ctx, func() { sever(client, there) })
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		carry(there, client)
	}()
	carry(client, there)
	<-done
}

// carry copies until the end of one direction. If that is no orderly end, both directions end.
func carry(to, from *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil {
		_ = to.SetLinger(0)
		_ = to.Close()
		_ = from.Close()
		return
	}
	_ = to.CloseWrite()
}

// sever ends a connection on both sides, and in both directions.
func sever(both ...*net.TCPConn) {
	for _, c := range both {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
}

// addrOf is an address of a client; a link-local one has its zone.
func addrOf(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	return netip.AddrPort{}
}
