package dns

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const tcpIdle = 10 * time.Second // RFC 7766 section 6.2.3: a few seconds

func (s *Server) serveTCP(ctx context.Context, f *front) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		conn, err := f.tcp.AcceptTCP()
		if err != nil {
			if passing(err) {
				continue
			}
			return err
		}
		var who question
		f.identify(&who, unmap(conn.RemoteAddr()), unmap(conn.LocalAddr()))
		if !s.conns.enter(who.asker) {
			_ = conn.SetLinger(0) // and no trace of it in the kernel
			_ = conn.Close()      // the kernel would queue it, which is worse for the asker
			continue
		}
		conns.Go(func() {
			defer s.conns.leave(who.asker)
			s.serveConn(ctx, f, conn)
		})
	}
}

// serveConn answers one question after the other until the asker ends or is idle.
func (s *Server) serveConn(ctx context.Context, f *front, conn *net.TCPConn) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	client, local := unmap(conn.RemoteAddr()), unmap(conn.LocalAddr())
	for ctx.Err() == nil {
		_ = conn.SetDeadline(time.Now().Add(tcpIdle))
		wire, err := readTCP(conn)
		if err != nil {
			return
		}
		q := &question{wire: wire, network: "tcp"}
		f.identify(q, client, local)
		answer, v := s.local(q)
		if v == dropped {
			return
		}
		if v == forward && isTransfer(wire) {
			s.splice(ctx, q, conn)
			return
		}
		if v == forward {
			answer = s.remote(ctx, q)
		}
		if writeTCP(conn, answer) != nil {
			return
		}
	}
}

func unmap(a net.Addr) netip.AddrPort {
	ap := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// isTransfer reports whether the response to a query may be of many messages: zone
// transfers (RFC 5936).
func isTransfer(wire []byte) bool {
	end := questionEnd(wire)
	if end == 0 {
		return false
	}
	qtype := uint16(wire[end-4])<<8 | uint16(wire[end-3])
	return qtype == dns.TypeAXFR || qtype == dns.TypeIXFR
}

// splice gives a whole connection to the server that was asked.
func (s *Server) splice(ctx context.Context, q *question, conn *net.TCPConn) {
	r := q.route()
	if len(r.servers) == 0 {
		return
	}
	dialCtx, cancel := context.WithTimeout(ctx, r.budget)
	defer cancel()
	up, err := r.dial(dialCtx, "tcp", r.servers[0].String())
	if err != nil {
		s.counts.failed.Add(1)
		return
	}
	defer up.Close()
	stop := context.AfterFunc(ctx, func() { _ = up.Close() })
	defer stop()
	s.counts.forwarded.Add(1)
	_ = conn.SetDeadline(time.Now().Add(spliceTime))
	_ = up.SetDeadline(time.Now().Add(spliceTime))
	if writeTCP(up, q.wire) != nil {
		return
	}
	var asking sync.WaitGroup
	asking.Go(func() { _, _ = io.Copy(up, conn) })
	_, _ = io.Copy(conn, up)
	_ = conn.Close() // ends the other direction as well
	asking.Wait()
}

// spliceTime is how long a zone transfer may take.
const spliceTime = 2 * time.Minute
