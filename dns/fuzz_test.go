package dns

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// server is a connection to one that answers any question with the same bytes, but for the
// ID, which it knows: the questioner's guard against others is fuzzed with the rest.
type server struct {
	net.Conn
	answer io.Reader
	sameID bool
	id     []byte
}

func (s *server) Write(b []byte) (int, error) {
	s.id = b[:2]
	if len(b) > 2 && int(b[0])<<8+int(b[1]) == len(b)-2 { // TCP: after the length
		s.id = b[2:4]
	}
	return len(b), nil
}

func (s *server) Read(b []byte) (int, error) {
	n, err := s.answer.Read(b)
	if s.sameID && n >= headerLen {
		copy(b, s.id)
	}
	return n, err
}
func (s *server) SetDeadline(time.Time) error { return nil }
func (s *server) Close() error                { return nil }

// FuzzUpstream: whatever another server answers, it is left out or is an answer to the question,
// which the asker gets with the ID of its own.
func FuzzUpstream(f *testing.F) {
	q := query("example.org", dns.TypeA)
	query := wireOf(f, q)
	good := new(dns.Msg).SetReply(q)
	f.Add(wireOf(f, good), false)
	good.Rcode = dns.RcodeServerFailure
	f.Add(wireOf(f, good), false)
	f.Add(append([]byte{0, byte(len(wireOf(f, good)))}, wireOf(f, good)...), true)
	f.Add(wireOf(f, new(dns.Msg).SetRcodeFormatError(q)), false)
	f.Add([]byte{0, 0, 0x80, 5, 0, 0, 0, 0, 0, 0, 0, 0}, false)
	f.Add(query, false)
	f.Fuzz(func(t *testing.T, answer []byte, tcp bool) {
		network := map[bool]string{true: "tcp", false: "udp"}[tcp]
		r := route{
			servers: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:53"), netip.MustParseAddrPort("192.0.2.2:53")}, budget: time.Minute,
			dial: func(context.Context, string, string) (net.Conn, error) {
				return &server{answer: bytes.NewReader(answer), sameID: !tcp}, nil
			},
		}
		got, err := newForwarder().ask(t.Context(), r, network, "10.1.0.2", query)
		if err != nil {
			return
		}
		if messageID(got) != messageID(query) || !sameQuestion(query, got) {
			t.Errorf("%x is taken for an answer", got)
		}
	})
}

// FuzzMessage: no length that a stream claims makes readTCP return more or less than that.
func FuzzMessage(f *testing.F) {
	f.Add([]byte{0, 2, 7, 7})
	f.Add([]byte{0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		wire, err := readTCP(bytes.NewReader(b))
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Error(err)
			}
			return
		}
		var out bytes.Buffer
		if err := writeTCP(&out, wire); err != nil || !bytes.HasPrefix(b, out.Bytes()) {
			t.Errorf("%x is %x, %v", b, wire, err)
		}
	})
}

// FuzzResolvConf: what is no address in resolv.conf(5) is left out.
func FuzzResolvConf(f *testing.F) {
	f.Add([]byte("# of the router\nnameserver 192.0.2.1\nnameserver fe80::1%eth0\noptions edns0\nsearch x y\n"))
	f.Add([]byte("nameserver\nnameserver x\n\tnameserver 127.0.0.53 trailing\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, s := range nameservers(text) {
			if !s.IsValid() || s.Port() != 53 || !bytes.Contains(text, []byte("nameserver")) {
				t.Errorf("%q has %s", text, s)
			}
		}
	})
}

// FuzzConntrack: no attributes of the kernel's make the reader go wrong; those of a tuple that we
// wrote are read as they were.
func FuzzConntrack(f *testing.F) {
	for _, to := range []string{"192.0.2.1:53", "[fd00::1]:53"} {
		dst := netip.MustParseAddrPort(to)
		src := netip.AddrPortFrom(dst.Addr().Next(), 4711)
		msg := append(make([]byte, 4), tuple(ctTupleOrig, unix.IPPROTO_UDP, src, dst).Serialize()...)
		if got, ok := origDst(msg); !ok || got != dst {
			f.Fatalf("%x is %s, %v", msg, got, ok)
		}
		f.Add(msg)
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		if dst, ok := origDst(msg); ok && !dst.IsValid() {
			t.Errorf("%x is %s", msg, dst)
		}
	})
}
