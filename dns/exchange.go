package dns

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// packets are the buffers of those who wait for a response: it may be as long as a
// datagram can be.
var packets = sync.Pool{New: func() any { return new([maxUDPPacket]byte) }}

// exchange asks one server once, with an ID and a port of chance (RFC 5452).
func exchange(ctx context.Context, r route, network string, server netip.AddrPort, query []byte) ([]byte, error) {
	conn, err := r.dial(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	own := append([]byte(nil), query...)
	_, _ = rand.Read(own[:2]) // never fails
	if network == "tcp" {
		return exchangeTCP(conn, own)
	}
	return exchangeUDP(conn, own, r.resend)
}

func exchangeUDP(conn net.Conn, query []byte, resend time.Duration) ([]byte, error) {
	if _, err := conn.Write(query); err != nil {
		return nil, err
	}
	if resend > 0 {
		again := time.NewTicker(resend)
		done := make(chan struct{})
		var resending sync.WaitGroup
		defer resending.Wait()
		defer close(done)
		defer again.Stop()
		resending.Go(func() { repeat(conn, query, again.C, done) })
	}
	buf := packets.Get().(*[maxUDPPacket]byte)
	defer packets.Put(buf)
	for {
		n, err := conn.Read(buf[:])
		if err != nil {
			return nil, err
		}
		if sameQuestion(query, buf[:n]) {
			return append([]byte(nil), buf[:n]...), nil
		}
	}
}

func repeat(conn net.Conn, query []byte, again <-chan time.Time, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-again:
			_, _ = conn.Write(query) // if it fails, so does the read
		}
	}
}

func exchangeTCP(conn net.Conn, query []byte) ([]byte, error) {
	if err := writeTCP(conn, query); err != nil {
		return nil, err
	}
	wire, err := readTCP(conn)
	if err == nil && !sameQuestion(query, wire) {
		err = errors.New("the response is to another question")
	}
	return wire, err
}

// writeTCP and readTCP put the length before a message (RFC 1035 section 4.2.2).
func writeTCP(w io.Writer, wire []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(wire))), wire...))
	return err
}

func readTCP(r io.Reader) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	// Not as much at once as somebody says will come.
	size := int64(binary.BigEndian.Uint16(length[:]))
	wire, err := io.ReadAll(io.LimitReader(r, size))
	if err == nil && int64(len(wire)) < size {
		err = io.ErrUnexpectedEOF
	}
	return wire, err
}
