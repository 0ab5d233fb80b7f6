package packets

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// patience bounds what takes milliseconds.
const patience = 30 * time.Second

// pair is two sandboxes that speak to each other, and a third that gets copies of what the first sends and gets.
type pair struct {
	app, db, ids *linktest.NS
	copy         *Copy
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{linktest.New(t), linktest.New(t), linktest.New(t), nil}
	linktest.Wire(t, "eth0", p.app, p.db, []string{"10.1.0.1/24"}, []string{"10.1.0.2/24"})
	var err error
	if p.copy, err = NewCopy(p.ids.Key(), 1400); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.copy.Close() })
	index := 0
	p.app.Do(func() {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			t.Error(err)
			return
		}
		index = l.Attrs().Index
	})
	if err := p.copy.Add(p.app.Key(), index); err != nil {
		t.Fatal(err)
	}
	return p
}

// device is the one for the copies.
func (p *pair) device(t *testing.T) (l netlink.Link, err error) {
	t.Helper()
	p.ids.Do(func() { l, err = netlink.LinkByName(p.copy.Name()) })
	return l, err
}

// TestCopy: all that an interface sends and gets is copied, whole segments that the kernel has not cut too, no byte more
// and none less; the stack of the sandbox that gets the copies is given none of it.
func TestCopy(t *testing.T) {
	p := newPair(t)
	l, err := p.device(t)
	if err != nil || l.Attrs().Name != "mirror0" || l.Attrs().MTU != 1400 {
		t.Fatalf("%+v, %v", l, err)
	}
	tap, err := Open(p.ids.Key(), l.Attrs().Index, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tap.Close()
	var deaf int // on all addresses: a broadcast would reach it
	p.ids.Do(func() {
		must(t, os.WriteFile("/proc/sys/net/ipv4/conf/all/rp_filter", []byte("0"), 0), os.WriteFile("/proc/sys/net/ipv4/conf/mirror0/rp_filter", []byte("0"), 0))
		if deaf, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err == nil {
			err = unix.Bind(deaf, &unix.SockaddrInet4{Port: 67})
		}
	})
	must(t, err)
	defer unix.Close(deaf)

	const size = 1 << 20
	var listener net.Listener
	p.db.Do(func() { listener, err = net.Listen("tcp", "10.1.0.2:80") })
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	served := make(chan error, 1)
	go func() {
		c, err := listener.Accept()
		if err == nil {
			_, err = io.Copy(c, c)
			_ = c.Close()
		}
		served <- err
	}()
	p.app.Do(func() {
		broadcast(t)
		c, err := net.DialTimeout("tcp", "10.1.0.2:80", patience)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		go func() {
			_, _ = c.Write(make([]byte, size))
			_ = c.(*net.TCPConn).CloseWrite()
		}()
		if n, err := io.Copy(io.Discard, c); n != size || err != nil {
			t.Errorf("%d bytes came back: %v", n, err)
		}
	})
	if err := <-served; err != nil {
		t.Fatal(err)
	}

	var there, back stream
	casts, largest := 0, 0
	stop := time.AfterFunc(patience, func() { _ = tap.Close() })
	defer stop.Stop()
	for there.have < size || back.have < size || casts < 1 {
		packet, err := tap.Read()
		if err != nil {
			t.Fatalf("%d bytes there, %d back, %d broadcasts: %v", there.have, back.have, casts, err)
		}
		b := packet.Data
		if len(b) < 34 || binary.BigEndian.Uint16(b[12:]) != unix.ETH_P_IP {
			continue
		}
		switch body := b[14:]; {
		case body[9] == unix.IPPROTO_UDP && body[16] == 255:
			casts++
		case body[9] == unix.IPPROTO_TCP:
			n := int(binary.BigEndian.Uint16(body[2:])) - 20 - int(body[20+12]>>4)*4
			if largest = max(largest, n); body[19] == 2 {
				there.add(body[20:], n)
			} else {
				back.add(body[20:], n)
			}
		}
	}
	if largest <= 1500 {
		t.Errorf("the largest segment had %d bytes: none was copied whole", largest)
	}
	if copied, lost := p.copy.Counts(); copied == 0 || lost != 0 {
		t.Errorf("%d copied, %d lost", copied, lost)
	}
	// What the stack was given came before the copies that were read.
	if n, _, err := unix.Recvfrom(deaf, make([]byte, 100), unix.MSG_DONTWAIT); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("the stack got %d bytes: %v", n, err)
	}
}

// stream is what was seen of one direction of a connection; what is sent again counts once.
type stream struct {
	first uint32
	seen  map[uint32]bool
	have  int
}

func (s *stream) add(tcp []byte, n int) {
	seq := binary.BigEndian.Uint32(tcp[4:])
	if tcp[13]&2 != 0 {
		s.first, s.seen = seq+1, map[uint32]bool{}
	}
	for i := range uint32(n) {
		if at := seq + i - s.first; !s.seen[at] {
			s.seen[at] = true
			s.have++
		}
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// broadcast sends a datagram to all of the calling thread's network.
func broadcast(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Error(err)
		return
	}
	defer unix.Close(fd)
	must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1), unix.BindToDevice(fd, "eth0"),
		unix.Sendto(fd, []byte("anybody?"), 0, &unix.SockaddrInet4{Port: 67, Addr: [4]byte{255, 255, 255, 255}}))
}

// TestCopyEnds: it ends with the interface, or when the sandbox takes the device away, and leaves nothing.
func TestCopyEnds(t *testing.T) {
	ended := func(p *pair, want error) {
		t.Helper()
		select {
		case err := <-p.copy.Ended():
			if !errors.Is(err, want) {
				t.Errorf("it ended by %v, want %v", err, want)
			}
		case <-time.After(patience):
			t.Errorf("it goes on; want %v", want)
		}
	}
	p := newPair(t)
	if err := p.copy.Close(); err != nil {
		t.Error(err)
	}
	if _, err := p.device(t); err == nil {
		t.Error("the device is left")
	}
	p = newPair(t)
	p.app.Do(func() {
		if l, err := netlink.LinkByName("eth0"); err != nil || netlink.LinkDel(l) != nil {
			t.Error(err)
		}
	})
	ended(p, ErrGone)
	p = newPair(t)
	l, err := p.device(t)
	if err != nil {
		t.Fatal(err)
	}
	p.ids.Do(func() { err = netlink.LinkSetDown(l) })
	if err != nil {
		t.Fatal(err)
	}
	p.app.Do(func() { broadcast(t) })
	ended(p, ErrNoDevice)
}
