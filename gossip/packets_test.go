package gossip

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"
)

// TestPackets: packets go between sockets of both kinds of addresses, to the bit, and who waits for one is told that the socket is closed.
func TestPackets(t *testing.T) {
	open := func(t *testing.T, at string) (*net.UDPConn, *packets, netip.AddrPort) {
		udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(at)))
		if err != nil && os.Getenv("CI") == "" {
			t.Skipf("this host has no such address: %v", err)
		} else if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = udp.Close() })
		p, err := newPackets(udp)
		if err != nil {
			t.Fatal(err)
		}
		return udp, p, udp.LocalAddr().(*net.UDPAddr).AddrPort()
	}
	for _, c := range []struct{ from, to, at string }{
		{"127.0.0.1:0", "127.0.0.2:0", ""}, {"[::1]:0", "[::1]:0", ""}, {"0.0.0.0:0", "127.0.0.1:0", ""}, {"127.0.0.1:0", "0.0.0.0:0", "127.0.0.1"}, {"[::]:0", "127.0.0.1:0", ""},
	} {
		t.Run(c.from+" to "+c.to, func(t *testing.T) {
			_, a, from := open(t, c.from)
			udp, b, to := open(t, c.to)
			if c.at != "" {
				to = netip.AddrPortFrom(netip.MustParseAddr(c.at), to.Port())
			}
			buf := make([]byte, 1<<16)
			for _, size := range []int{0, 1, 1400, 40000} {
				said := make([]byte, size)
				for i := range said {
					said[i] = byte(i * 7)
				}
				go func() {
					time.Sleep(time.Millisecond) // so that the other one waits
					if err := a.write(said, to); err != nil {
						t.Errorf("send %d bytes: %v", size, err)
					}
				}()
				_ = udp.SetReadDeadline(time.Now().Add(10 * time.Second))
				n, by, err := b.read(buf)
				if err != nil || string(buf[:n]) != string(said) || by.Port() != from.Port() || !by.Addr().IsLoopback() || by.Addr().Is4In6() {
					t.Fatalf("of %d bytes %d came, by %v: %v", size, n, by, err)
				}
			}
			go func() {
				time.Sleep(10 * time.Millisecond)
				_ = udp.Close()
			}()
			if _, _, err := b.read(buf); !errors.Is(err, net.ErrClosed) {
				t.Errorf("a closed socket: %v", err)
			}
			if err := b.write(nil, to); !errors.Is(err, net.ErrClosed) {
				t.Errorf("a closed socket: %v", err)
			}
		})
	}
	_, four, _ := open(t, "127.0.0.1:0")
	if err := four.write([]byte("x"), netip.MustParseAddrPort("[::1]:1")); err == nil {
		t.Error("an IPv4 socket has sent to an IPv6 address")
	}
}
