package dns

import (
	"context"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// udpReaders is how many goroutines read one socket: what is ours is answered by
// the reader itself.
const udpReaders = 2

// maxQuery is the longest query over UDP that is heard, bytes. Real ones are far
// shorter.
const maxQuery = 4096

func (s *Server) serveUDP(ctx context.Context, f *front) error {
	var forwards sync.WaitGroup
	defer forwards.Wait()
	buf, oob := make([]byte, maxQuery), make([]byte, 128)
	for {
		n, oobn, flags, from, err := f.udp.ReadMsgUDPAddrPort(buf, oob)
		if err != nil {
			if passing(err) {
				continue
			}
			return err
		}
		if flags&unix.MSG_TRUNC != 0 {
			continue
		}
		to, ok := destination(oob[:oobn])
		if !ok {
			continue
		}
		q := &question{wire: buf[:n], network: "udp"}
		client := netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		f.identify(q, client, netip.AddrPortFrom(to, f.port()))
		answer := func(wire []byte) { _, _, _ = f.udp.WriteMsgUDPAddrPort(wire, source(to), from) }
		wire, v := s.local(q)
		switch v {
		case forward:
			if !s.forward.enter(q.asker) { // not even a goroutine for it
				answer(s.overload(q))
				continue
			}
			q.wire = append([]byte(nil), q.wire...)
			forwards.Go(func() {
				defer s.forward.leave(q.asker)
				s.waiting.begin(q, answer)
				s.waiting.again(s.index, s.cfg.Hosts, &s.counts.answered, q) // the news may have come since it was looked at
				if wire := s.remoteEntered(ctx, q); s.waiting.end(q) {
					answer(wire)
				}
			})
		case answered, refused:
			answer(wire)
		}
	}
}

func (f *front) port() uint16    { return f.udp.LocalAddr().(*net.UDPAddr).AddrPort().Port() }
func (f *front) tcpPort() uint16 { return f.tcp.Addr().(*net.TCPAddr).AddrPort().Port() }

// destination reads in_pktinfo (ip(7)) or in6_pktinfo (RFC 3542).
func destination(oob []byte) (netip.Addr, bool) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return netip.Addr{}, false
	}
	for _, m := range msgs {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= 12:
			return netip.AddrFrom4([4]byte(m.Data[8:12])), true
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= 16:
			return netip.AddrFrom16([16]byte(m.Data[:16])), true
		}
	}
	return netip.Addr{}, false
}

// source is the control message that has a datagram sent from an address.
func source(a netip.Addr) []byte {
	if a.Is4() {
		return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: a.As4()})
	}
	return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: a.As16()})
}
