package gossip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-sockaddr"
	"github.com/hashicorp/memberlist"
	"golang.org/x/sys/unix"
)

const (
	packetBytes = 2 << 20   // room for packets that wait, as memberlist has it
	streamBytes = 128 << 10 // of a stream: the kernel keeps twice that, for each one
	// unkept has no stream be kept alive: each has a deadline, most live for a moment, and to ask for it is four system calls at
	// either end, of the dozen that a stream takes.
	unkept = -1
)

// sockets is a host's place in the network: memberlist's transport over UDP and TCP, whose
// packets are looked at before anything is kept of them.
type sockets struct {
	tcp     *net.TCPListener
	udp     *net.UDPConn
	wire    *packets // of udp
	packets chan *memberlist.Packet
	streams chan net.Conn
	// screen returns what is to be handed on of a packet, if anything is. It must not keep it.
	screen func(b []byte) (packet []byte, is bool)
	ended  context.Context
	end    context.CancelFunc
	work   sync.WaitGroup
}

// listenOn opens both sockets, on the same port. Nothing is heard before start.
func listenOn(bind netip.AddrPort) (*sockets, error) {
	s := &sockets{packets: make(chan *memberlist.Packet), streams: make(chan net.Conn)}
	s.ended, s.end = context.WithCancel(context.Background())
	small := net.ListenConfig{KeepAlive: unkept, Control: func(_, _ string, c syscall.RawConn) error {
		// For streams that are accepted, before their window is announced. A stream goes on
		// if it cannot be had.
		return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, streamBytes) })
	}}
	tcp, err := small.Listen(context.Background(), "tcp", bind.String())
	if err != nil {
		return nil, err
	}
	s.tcp = tcp.(*net.TCPListener)
	at := net.UDPAddrFromAddrPort(netip.AddrPortFrom(bind.Addr(), uint16(s.port())))
	if s.udp, err = net.ListenUDP("udp", at); err != nil {
		_ = tcp.Close()
		return nil, err
	}
	if s.wire, err = newPackets(s.udp); err != nil {
		_, _ = tcp.Close(), s.udp.Close()
		return nil, err
	}
	for size := packetBytes; size > 0 && s.udp.SetReadBuffer(size) != nil; size /= 2 {
	}
	return s, nil
}

func (s *sockets) port() int { return s.tcp.Addr().(*net.TCPAddr).Port }

func (s *sockets) start(screen func(b []byte) (packet []byte, is bool)) {
	s.screen = screen
	s.work.Go(s.accept)
	s.work.Go(s.read)
}

func (s *sockets) accept() {
	for {
		c, err := s.tcp.AcceptTCP()
		if err != nil {
			if s.over(err) {
				return
			}
			continue
		}
		select {
		case s.streams <- c:
		case <-s.ended.Done():
			_ = c.Close()
			return
		}
	}
}

// over reports whether a socket has ended with an error; else it waits a moment, for there to
// be files or memory again.
func (s *sockets) over(err error) bool {
	if errors.Is(err, net.ErrClosed) {
		return true
	}
	return !sleep(s.ended, 5*time.Millisecond)
}

// read reads packets into the one buffer there is, and copies those that are handed on.
func (s *sockets) read() {
	buf := make([]byte, 1<<16)
	for {
		n, from, err := s.wire.read(buf)
		if err != nil {
			if s.over(err) {
				return
			}
			continue
		}
		now := time.Now()
		if n == 0 {
			continue
		}
		packet, is := s.screen(buf[:n])
		if !is {
			continue
		}
		p := &memberlist.Packet{Buf: append([]byte(nil), packet...), From: net.UDPAddrFromAddrPort(from), Timestamp: now}
		select {
		case s.packets <- p:
		case <-s.ended.Done():
			return
		}
	}
}

// FinalAdvertiseAddr implements memberlist.Transport.
func (s *sockets) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	if ip != "" {
		a, err := netip.ParseAddr(ip)
		if err != nil {
			return nil, 0, fmt.Errorf("advertise address %q: %w", ip, err)
		}
		return net.IP(a.Unmap().AsSlice()), port, nil
	}
	bound := s.tcp.Addr().(*net.TCPAddr).AddrPort()
	if a := bound.Addr().Unmap(); a != netip.IPv4Unspecified() {
		return net.IP(a.AsSlice()), s.port(), nil
	}
	private, err := sockaddr.GetPrivateIP()
	if err != nil || private == "" {
		return nil, 0, fmt.Errorf("this host has no private address: set the address to advertise (GRAPEVINE_ADVERTISE): %w", err)
	}
	return net.ParseIP(private), s.port(), nil
}

// WriteTo implements memberlist.Transport.
func (s *sockets) WriteTo(b []byte, addr string) (time.Time, error) {
	to, err := netip.ParseAddrPort(addr) // memberlist has but addresses
	if err != nil {
		return time.Time{}, err
	}
	err = s.wire.write(b, to)
	return time.Now(), err
}

// PacketCh implements memberlist.Transport.
func (s *sockets) PacketCh() <-chan *memberlist.Packet { return s.packets }

// StreamCh implements memberlist.Transport.
func (s *sockets) StreamCh() <-chan net.Conn { return s.streams }

// DialTimeout implements memberlist.Transport.
func (s *sockets) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return (&net.Dialer{Timeout: timeout, KeepAlive: unkept}).Dial("tcp", addr)
}

// Shutdown implements memberlist.Transport.
func (s *sockets) Shutdown() error {
	s.end()
	err := errors.Join(s.tcp.Close(), s.udp.Close())
	s.work.Wait()
	return err
}
