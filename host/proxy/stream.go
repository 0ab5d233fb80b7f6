package proxy

import (
	"io"
	"net"
	"net/netip"
	"os"

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
		if s.refuse(addrOf(from).Addr(), arrival(client)) || !s.take() {
			reset(client)
			continue
		}
		go func() {
			defer func() { <-s.streams }()
			s.stream(client, p.to)
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

func (s *Server) take() bool {
	select {
	case s.streams <- struct{}{}:
		return true
	default:
		return false
	}
}

// reset ends a connection as a port does that nobody serves.
func reset(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	_ = unix.Close(fd)
}

// stream carries a connection until both sides have ended, or one of them is gone.
func (s *Server) stream(fd int, to netip.AddrPort) {
	container, err := s.dial("tcp", to)
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
