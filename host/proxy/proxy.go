// Package proxy answers at ports of this host in the place of a container, where no rule of the
// kernel can lead packets to it: at IPv6 addresses for a container that has IPv4 only, and to
// clients with link-local addresses, which Linux forwards nothing of. It is what docker-proxy is to
// Docker's bridges. The container does not see the client's address: of the host itself it sees the gateway's, and of everybody
// else one that rules give to what is sent from a loopback address, by which no container is reached without them: so nobody else comes as the host.
//
// It serves on the sockets that hold the ports (package hold), all of them from one goroutine, so
// that a port that nobody uses costs nothing beside its socket. A connection costs two files and
// two goroutines; Most bounds them, and of the place that has most goes who is too many. Connections end with the agent, as those of docker-proxy end
// with dockerd; what goes by rules does not.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/pulse"
)

// Sockets are what holds the ports: *hold.Sockets.
type Sockets interface {
	// With calls f with the socket of a port, and reports whether there is one.
	With(network string, at netip.AddrPort, f func(fd int) error) (bool, error)
}

// Forward is a port of this host, or a run of them, and the container's.
type Forward struct {
	Network string // "tcp" or "udp"
	At, To  netip.AddrPort
	More    uint16
}

// port is one port of a Forward.
type port struct {
	network string
	at      netip.AddrPort
}

// serving is one port that is served.
type serving struct {
	port
	to netip.AddrPort
}

// Most connections of TCP, and as many clients of UDP, are served at the same time.
const Most = 4096

// Server serves what Set declares. It is made by New.
type Server struct {
	sockets Sockets
	// refuse says of a client, by its address and the interface that it came by, that it may not
	// get at ports of this host.
	refuse func(from netip.Addr, index int) bool
	dial   func(ctx context.Context, network string, to netip.AddrPort, host bool) (net.Conn, error)
	log    *slog.Logger
	epoll  int

	mu       sync.Mutex
	declared []Forward
	served   map[port]int32    // by number; 0: not yet
	byNumber map[int32]serving // what epoll knows
	next     int32
	streams  *streams
	clients  *clients
}

// New returns a Server that serves nothing yet.
func New(s Sockets, refuse func(from netip.Addr, index int) bool, log *slog.Logger) (*Server, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make an epoll for published ports: %w", err)
	}
	return &Server{
		sockets: s, refuse: refuse, dial: dial, log: log, epoll: fd,
		served: map[port]int32{}, byNumber: map[int32]serving{},
		streams: newStreams(Most), clients: newClients(Most),
	}, nil
}

// Set declares all ports that are served; their sockets are held before, and until others are
// declared. It does not block.
func (s *Server) Set(all []Forward) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.declared
	s.declared = slices.Clone(all)
	for _, f := range missing(before, all) {
		for p := range f.each() {
			s.end(p.port)
		}
	}
	for _, f := range missing(all, before) {
		for p := range f.each() {
			s.begin(p)
		}
	}
}

// dialPatience is how long a container may take to answer.
const dialPatience = 5 * time.Second

// dial opens a connection to a container, for this host itself or for somebody else. It is from where it is sent that says for whom, since a mark (SO_MARK)
// is anybody's who has rules.
func dial(ctx context.Context, network string, to netip.AddrPort, host bool) (net.Conn, error) {
	d := net.Dialer{Timeout: dialPatience}
	if !host {
		from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
		if to.Addr().Is6() {
			from.IP = net.IPv6loopback
		}
		d.LocalAddr = from
		if network == "udp" {
			d.LocalAddr = (*net.UDPAddr)(from)
		}
		d.Control = func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { // connections to different containers may have one port (since Linux 4.2)
				_ = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
			})
		}
	}
	return d.DialContext(ctx, network, to.String())
}

// missing returns what of a is not in b.
func missing(a, b []Forward) (out []Forward) {
	in := make(map[Forward]bool, len(b))
	for _, f := range b {
		in[f] = true
	}
	for _, f := range a {
		if !in[f] {
			out = append(out, f)
		}
	}
	return out
}

func (f Forward) each() func(func(serving) bool) {
	return func(yield func(serving) bool) {
		for n := range int(f.More) + 1 {
			at := netip.AddrPortFrom(f.At.Addr(), f.At.Port()+uint16(n))
			if !yield(serving{port{f.Network, at}, netip.AddrPortFrom(f.To.Addr(), f.To.Port()+uint16(n))}) {
				return
			}
		}
	}
}

// begin serves a port; if its socket is not held (somebody else has it), later (retry).
func (s *Server) begin(p serving) {
	number := s.next + 1
	found, err := s.sockets.With(p.network, p.at, func(fd int) error {
		if err := open(p.network, fd); err != nil {
			return err
		}
		return unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: number})
	})
	if err != nil {
		s.log.Warn("a published port is not answered at this host's IPv6 addresses", "port", p.at, "network", p.network, "err", err)
	}
	if !found || err != nil {
		s.served[p.port] = 0
		return
	}
	s.next = number
	s.served[p.port], s.byNumber[number] = number, p
}

// end serves a port no more; connections go on.
func (s *Server) end(p port) {
	number := s.served[p]
	delete(s.served, p)
	delete(s.byNumber, number)
	if number == 0 {
		return
	}
	_, _ = s.sockets.With(p.network, p.at, func(fd int) error {
		_ = unix.EpollCtl(s.epoll, unix.EPOLL_CTL_DEL, fd, nil)
		return shut(p.network, fd)
	})
	s.clients.drop(p)
}

// retry begins what could not begin.
func (s *Server) retry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.declared {
		for p := range f.each() {
			if number, ok := s.served[p.port]; ok && number == 0 {
				s.begin(p)
			}
		}
	}
}

// open makes a socket that holds a port one that serves it. What is left of connections neither
// keeps it from that, nor keeps the port from whoever has it next (package hold, openTCP):
// connections inherit the option.
func open(network string, fd int) error {
	if network == "tcp" {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return err
		}
		return unix.Listen(fd, 1024)
	}
	return errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<18),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1))
}

// shut makes it one that only holds the port.
func shut(network string, fd int) error {
	if network == "tcp" {
		return errors.Join(unix.Shutdown(fd, unix.SHUT_RD), unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 0))
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1)
}

// pause is how long ports wait for a socket that somebody else has.
const pause = 2 * time.Second

// Run serves until ctx ends, and returns its error.
func (s *Server) Run(ctx context.Context) error {
	defer s.clients.close()
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("wait for clients of published ports: %w", err)
	}
	defer unix.Close(wake)
	if err := unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		return fmt.Errorf("wait for clients of published ports: %w", err)
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_, _ = unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	})
	defer func() {
		if !stop() {
			<-woken // before wake is closed
		}
	}()
	events := make([]unix.EpollEvent, 64)
	looked := time.Now()
	for ctx.Err() == nil {
		n, err := unix.EpollWait(s.epoll, events, int(pulse.Wait(pause).Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for clients of published ports: %w", err)
		}
		for _, e := range events[:max(n, 0)] {
			s.mu.Lock()
			p, ok := s.byNumber[e.Fd]
			s.mu.Unlock()
			if ok && p.network == "tcp" {
				s.accept(p)
			} else if ok {
				s.receive(p)
			}
		}
		if time.Since(looked) >= pause-pulse.Long/2 { // at the moment that is nearest to it
			s.retry()
			s.clients.expire(time.Now())
			looked = time.Now()
		}
	}
	return ctx.Err()
}
