package memnet

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

var (
	a = netip.MustParseAddrPort("10.0.0.1:1")
	b = netip.MustParseAddrPort("10.0.0.2:1")
)

func pair2(t *testing.T, n *Network) (*Transport, *Transport) {
	t.Helper()
	ta, err := n.Listen(a)
	if err != nil {
		t.Fatal(err)
	}
	tb, err := n.Listen(b)
	if err != nil {
		t.Fatal(err)
	}
	return ta, tb
}

func received(t *Transport) (n int) {
	for {
		select {
		case <-t.PacketCh():
			n++
		default:
			return n
		}
	}
}

func sendN(t *testing.T, tr *Transport, n int) {
	t.Helper()
	for range n {
		if _, err := tr.WriteTo([]byte("x"), b.String()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPackets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		ta, tb := pair2(t, n)
		sendN(t, ta, 1000)
		if got := received(tb); got != 1000 {
			t.Errorf("perfect link: %d of 1000", got)
		}
		n.SetLink(a.Addr(), b.Addr(), Link{Loss: 0.5})
		sendN(t, ta, 1000)
		if got := received(tb); got < 400 || got > 600 {
			t.Errorf("half is lost: %d of 1000", got)
		}
		n.SetLink(a.Addr(), b.Addr(), Link{Duplicate: 1})
		sendN(t, ta, 100)
		if got := received(tb); got != 200 {
			t.Errorf("all doubled: %d of 100", got)
		}
		n.CutOneWay(a.Addr(), b.Addr())
		sendN(t, ta, 100)
		if got := received(tb); got != 0 {
			t.Errorf("cut: %d", got)
		}
		n.Heal()
		n.SetLink(a.Addr(), b.Addr(), Link{})
		sendN(t, ta, packetBacklog+100)
		if got := received(tb); got != packetBacklog {
			t.Errorf("full receiver: %d of %d", got, packetBacklog)
		}
		if tr := n.Traffic(); tr.Packets != 2200+packetBacklog+100 || tr.Dropped < 600 {
			t.Errorf("counted %+v", tr)
		}
	})
}

func TestDelayAndReorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		ta, tb := pair2(t, n)
		n.SetAll(Link{Delay: 10 * time.Millisecond, Reorder: 0.3})
		for i := range 100 {
			_, _ = ta.WriteTo([]byte{byte(i)}, b.String())
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		last, swapped := -1, 0
		for range 100 {
			p := <-tb.PacketCh()
			if int(p.Buf[0]) < last {
				swapped++
			}
			last = int(p.Buf[0])
		}
		if swapped < 10 {
			t.Errorf("%d out of order", swapped)
		}
	})
}

func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		ta, tb := pair2(t, n)
		n.SetAll(Link{Delay: 5 * time.Millisecond})
		c, err := ta.DialTimeout(b.String(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		s := <-tb.StreamCh()
		const size = 3 * window
		go func() {
			_, _ = c.Write(make([]byte, size)) // more than the window: waits for the reader
			_ = c.Close()
		}()
		began := time.Now()
		got, err := io.ReadAll(s)
		if err != nil || len(got) != size || time.Since(began) < 15*time.Millisecond {
			t.Errorf("read %d bytes, %v, in %v", len(got), err, time.Since(began))
		}
		if _, err := s.Write([]byte("x")); err == nil {
			t.Error("write to a closed peer succeeds")
		}
		if s.RemoteAddr().String() != a.String() || c.RemoteAddr().String() != b.String() {
			t.Errorf("addresses %v and %v", s.RemoteAddr(), c.RemoteAddr())
		}
		_ = s.Close()
	})
}

func TestStreamDeadlinesAndCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		ta, tb := pair2(t, n)
		c, err := ta.DialTimeout(b.String(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		s := <-tb.StreamCh()
		_ = s.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read: %v", err)
		}
		n.Partition([]netip.Addr{a.Addr()})
		_ = c.SetDeadline(time.Now().Add(time.Second))
		if _, err := c.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("write over a cut link: %v", err)
		}
		began := time.Now()
		_, err = ta.DialTimeout(b.String(), time.Second)
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() || time.Since(began) != time.Second {
			t.Errorf("dial over a cut link: %v after %v", err, time.Since(began))
		}
		_ = c.SetDeadline(time.Time{})
		_ = s.SetDeadline(time.Time{})
		time.AfterFunc(time.Minute, n.Heal)
		if _, err := c.Write([]byte("x")); err != nil {
			t.Errorf("write while the link heals: %v", err)
		}
		if _, err := s.Read(make([]byte, 1)); err != nil {
			t.Errorf("read after it healed: %v", err)
		}
	})
}

func TestListenAndShutdown(t *testing.T) {
	n := New(1)
	ta, tb := pair2(t, n)
	if _, err := n.Listen(a); err == nil {
		t.Error("an address is given twice")
	}
	if err := tb.Shutdown(); err != nil {
		t.Fatal(err)
	}
	if _, err := ta.DialTimeout(b.String(), time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial to nobody: %v", err)
	}
	if _, err := tb.WriteTo(nil, a.String()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write after shutdown: %v", err)
	}
	if _, err := n.Listen(b); err != nil {
		t.Errorf("the address is free again: %v", err)
	}
}
