package memnet

import (
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	packetBacklog = 1024 // packets a receiver holds before it drops more
	streamBacklog = 256  // streams not yet accepted before more wait
	// As Linux does it: tcp(7), tcp_syn_retries and the least retransmission time-out.
	synAgain     = time.Second
	segmentAgain = 200 * time.Millisecond
)

// Transport is one host's end of a Network.
type Transport struct {
	net     *Network
	addr    netip.AddrPort
	packets chan *memberlist.Packet
	streams chan net.Conn
	closed  atomic.Bool
}

var _ memberlist.Transport = (*Transport)(nil)

func newTransport(n *Network, addr netip.AddrPort) *Transport {
	return &Transport{
		net:     n,
		addr:    addr,
		packets: make(chan *memberlist.Packet, packetBacklog),
		streams: make(chan net.Conn, streamBacklog),
	}
}

// Addr is the address the transport listens on.
func (t *Transport) Addr() netip.AddrPort { return t.addr }

// FinalAdvertiseAddr implements memberlist.Transport: an empty address stands
// for that of the transport.
func (t *Transport) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	if ip == "" {
		return net.IP(t.addr.Addr().AsSlice()), int(t.addr.Port()), nil
	}
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return nil, 0, fmt.Errorf("advertise address: %w", err)
	}
	return net.IP(addr.AsSlice()), port, nil
}

// PacketCh implements memberlist.Transport.
func (t *Transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh implements memberlist.Transport.
func (t *Transport) StreamCh() <-chan net.Conn { return t.streams }

// WriteTo sends a packet, and like UDP does not say whether it arrives.
func (t *Transport) WriteTo(b []byte, addr string) (time.Time, error) {
	now := time.Now()
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return now, fmt.Errorf("send packet: %w", err)
	}
	if t.closed.Load() {
		return now, net.ErrClosed
	}
	for _, delay := range t.net.fates(t.addr.Addr(), to.Addr(), len(b)) {
		p := &memberlist.Packet{Buf: append([]byte(nil), b...), From: net.UDPAddrFromAddrPort(t.addr)}
		if delay == 0 {
			t.net.deliver(to, p)
		} else {
			time.AfterFunc(delay, func() { t.net.deliver(to, p) })
		}
	}
	return now, nil
}

// fates decides what becomes of a packet: one delay for each copy that arrives.
func (n *Network) fates(from, to netip.Addr, size int) []time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.traffic.Packets++
	n.traffic.PacketBytes += uint64(size)
	l := n.linkLocked(from, to)
	if !n.upLocked(from, to) || l.NoPackets || n.chance(l.Loss) {
		n.traffic.Dropped++
		return nil
	}
	delays := []time.Duration{n.delayLocked(l)}
	if n.chance(l.Duplicate) {
		delays = append(delays, n.delayLocked(l))
	}
	if n.chance(l.Reorder) {
		delays[0] += time.Duration(1+n.rnd.IntN(3)) * max(l.Delay, time.Millisecond)
	}
	return delays
}

func (n *Network) chance(p float64) bool { return p > 0 && n.rnd.Float64() < p }

func (n *Network) deliver(to netip.AddrPort, p *memberlist.Packet) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p.Timestamp = time.Now()
	if t := n.hosts[to]; t != nil {
		select {
		case t.packets <- p:
			return
		default:
		}
	}
	n.traffic.Dropped++
}

// DialTimeout opens a stream. Over a cut or lossy link, or to a host that does not
// accept, it waits and tries again when TCP does, but no longer than timeout.
func (t *Transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	expired := time.NewTimer(timeout)
	defer expired.Stop()
	for again := synAgain; ; again *= 2 {
		wait := again
		trip, arrived := t.net.handshake(t.addr.Addr(), to.Addr())
		if arrived {
			wait = trip
		}
		select {
		case <-time.After(wait):
		case <-expired.C:
			return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(to), Err: timeoutError{}}
		}
		if arrived {
			if c, err := t.connect(to); c != nil || err != nil {
				return c, err
			}
		}
	}
}

// handshake says how long a SYN and its answer take, if neither is lost.
func (n *Network) handshake(from, to netip.Addr) (trip time.Duration, arrived bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	there, back := n.linkLocked(from, to), n.linkLocked(to, from)
	if !n.upLocked(from, to) || !n.upLocked(to, from) || there.NoStreams || n.chance(there.Loss) || n.chance(back.Loss) {
		return 0, false
	}
	return n.delayLocked(there) + n.delayLocked(back), true
}

// connect returns neither a stream nor an error if the peer's backlog is full.
func (t *Transport) connect(to netip.AddrPort) (net.Conn, error) {
	n := t.net
	n.mu.Lock()
	defer n.mu.Unlock()
	peer := n.hosts[to]
	if peer == nil || t.closed.Load() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(to), Err: syscall.ECONNREFUSED}
	}
	here, there := n.pipe(t.addr, to)
	select {
	case peer.streams <- there:
		n.traffic.Streams++
		return here, nil
	default:
		return nil, nil
	}
}

// Shutdown takes the host off the network. Packets on their way to it are lost;
// open streams stay with their owners, who close them.
func (t *Transport) Shutdown() error {
	t.closed.Store(true)
	t.net.mu.Lock()
	if t.net.hosts[t.addr] == t {
		delete(t.net.hosts, t.addr)
	}
	t.net.mu.Unlock()
	for {
		select {
		case c := <-t.streams:
			_ = c.Close()
		default:
			return nil
		}
	}
}
