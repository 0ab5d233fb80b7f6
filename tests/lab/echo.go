package lab

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

// echo sends ICMP echo requests (RFC 792, RFC 4443) to one address.
type echo struct {
	to      netip.Addr
	zone    string // the interface's number, for a link-local address
	conn    net.PacketConn
	id      uint16
	answers chan answer
	ended   chan struct{}
}

type answer struct {
	seq uint16
	at  time.Time
}

func newEcho(to netip.Addr) (*echo, error) {
	network := "ip4:icmp"
	if to.Is6() {
		network = "ip6:ipv6-icmp"
	}
	zone := to.Zone()
	if zone != "" { // package net remembers numbers by their names, whichever namespace they are of
		at, err := net.InterfaceByName(zone)
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", zone, err)
		}
		zone = strconv.Itoa(at.Index)
	}
	conn, err := net.ListenPacket(network, "")
	if err != nil {
		return nil, fmt.Errorf("open a raw socket: %w", err)
	}
	e := &echo{to: to, zone: zone, conn: conn, id: echoID(), answers: make(chan answer, 64), ended: make(chan struct{})}
	go e.receive()
	return e, nil
}

// lastEcho counts the echoes of this process.
var lastEcho atomic.Uint32

// echoID differs from those of the other echoes of this process, and mostly from those of other processes.
func echoID() uint16 { return uint16(uint32(os.Getpid())<<8 + lastEcho.Add(1)) }

// newEchoes are one for each address.
func newEchoes(to []netip.Addr) (all []*echo, err error) {
	for _, addr := range to {
		e, err := newEcho(addr)
		if err != nil {
			for _, e := range all {
				e.close()
			}
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// close ends receive, which closes answers.
func (e *echo) close() {
	close(e.ended)
	_ = e.conn.Close()
}

// send sends one request; that it cannot be sent (no route yet) counts as lost.
func (e *echo) send(seq uint16) {
	msg := make([]byte, 56)
	msg[0] = 8
	if e.to.Is6() {
		msg[0] = 128 // the kernel fills in the checksum of ICMPv6
	}
	binary.BigEndian.PutUint16(msg[4:], e.id)
	binary.BigEndian.PutUint16(msg[6:], seq)
	if e.to.Is4() {
		binary.BigEndian.PutUint16(msg[2:], checksum(msg))
	}
	_, _ = e.conn.WriteTo(msg, &net.IPAddr{IP: e.to.AsSlice(), Zone: e.zone})
}

func (e *echo) receive() {
	defer close(e.answers)
	reply := byte(0)
	if e.to.Is6() {
		reply = 129
	}
	buf := make([]byte, 1500)
	for {
		n, from, err := e.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		source, _ := netip.AddrFromSlice(from.(*net.IPAddr).IP)
		if n < 8 || buf[0] != reply || source.Unmap() != e.to.WithZone("") || binary.BigEndian.Uint16(buf[4:]) != e.id {
			continue
		}
		select {
		case e.answers <- answer{binary.BigEndian.Uint16(buf[6:]), time.Now()}:
		case <-e.ended:
			return
		}
	}
}

// checksum is the Internet checksum (RFC 1071) of a message of even length.
func checksum(msg []byte) uint16 {
	var sum uint32
	for i := 0; i < len(msg); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(msg[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
