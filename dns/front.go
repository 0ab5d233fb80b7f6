package dns

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

const rcodeServFail = dns.RcodeServerFailure

// errGone ends a front because of what it stands on; it is not trouble.
var errGone = errors.New("the device has gone")

// front is one pair of sockets on which questions come.
type front struct {
	udp *net.UDPConn
	tcp *net.TCPListener
	// identify says who asks, from where the message came and where it came to.
	identify func(q *question, client, local netip.AddrPort)
}

// openFront opens both sockets in the caller's network namespace. If the port is 0
// each gets one of its own. family is "4" or "6".
func openFront(ctx context.Context, lc net.ListenConfig, family, addr string) (*front, error) {
	udp, err := lc.ListenPacket(ctx, "udp"+family, addr)
	if err != nil {
		return nil, err
	}
	f := &front{udp: udp.(*net.UDPConn)}
	if err := f.wantDestination(family); err != nil {
		_ = udp.Close()
		return nil, err
	}
	tcp, err := lc.Listen(ctx, "tcp"+family, addr)
	if err != nil {
		_ = udp.Close()
		return nil, err
	}
	f.tcp = tcp.(*net.TCPListener)
	return f, nil
}

func (f *front) close() {
	_ = f.udp.Close()
	_ = f.tcp.Close()
}

// questionBytes is the room for questions that wait, some thousand of them, while the
// host's processors are at something else.
const questionBytes = 1 << 20

// wantDestination has the kernel tell of each datagram which of the host's
// addresses it came to: the answer must come from there.
func (f *front) wantDestination(family string) error {
	raw, err := f.udp.SyscallConn()
	if err != nil {
		return err
	}
	level, option := unix.IPPROTO_IP, unix.IP_PKTINFO
	if family == "6" {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
	}
	if e := raw.Control(func(fd uintptr) {
		// What the host's limit allows is kept if more is not to be had.
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, questionBytes)
		err = unix.SetsockoptInt(int(fd), level, option, 1)
	}); e != nil {
		return e
	}
	return err
}

// serve answers on both sockets until ctx is done, then closes them.
func (s *Server) serve(ctx context.Context, f *front) error {
	g, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, f.close)
	defer stop()
	for range udpReaders {
		g.Go(func() error { return s.serveUDP(ctx, f) })
	}
	g.Go(func() error { return s.serveTCP(ctx, f) })
	return ended(ctx, g.Wait())
}

// ended makes nothing of the errors that closing a front makes.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, net.ErrClosed) || errors.Is(err, errGone)) {
		return nil
	}
	return err
}

// passing reports whether a socket works on after an error: those that tell of
// one answer that did not arrive, or of a lack that will pass.
func passing(err error) bool {
	for _, no := range []error{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ECONNABORTED, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, no) {
			time.Sleep(time.Millisecond)
			return true
		}
	}
	return false
}

// noIPv6 reports whether the host has IPv6 switched off.
func noIPv6(err error) bool {
	return errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EADDRNOTAVAIL)
}
