package hold

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/host/nft"
	"github.com/grapevine-net/grapevine/service/expose"
)

// TestRefused: who sends datagrams to an exposed port that nobody is behind is told at once, as a caller of TCP is, though a socket
// holds the port; other ports' programs hear what is for them.
func TestRefused(t *testing.T) {
	host, outside := linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", host, outside, []string{"10.9.0.1/24", "fd09::1/64"}, []string{"10.9.0.2/24", "fd09::2/64"})
	want := table{here: []netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("fd09::1")}, ports: map[front]expose.Back{}}
	for _, v6 := range []bool{false, true} {
		want.ports[front{expose.Port{UDP: true, Port: 53}, v6}] = expose.Back{}
		want.ports[front{expose.Port{Port: 54}, v6}] = expose.Back{} // TCP's: a program may have that of UDP
	}
	host.Do(func() {
		linktest.Up(t, "lo")
		for _, at := range []string{"0.0.0.0:53", "[::]:53", "0.0.0.0:54", "[::]:54"} {
			network := "udp4"
			if at[0] == '[' {
				network = "udp6"
			}
			p, err := net.ListenPacket(network, at)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { p.Close() })
			if at[len(at)-1] == '4' {
				go func() {
					b := make([]byte, 10)
					for n, from, err := p.ReadFrom(b); err == nil; n, from, err = p.ReadFrom(b) {
						_, _ = p.WriteTo(b[:n], from)
					}
				}()
			}
		}
		conn, err := nft.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.Do(whole("gv0", want)); err != nil {
			t.Fatal(err)
		}
		if list, err := conn.Handles(nft.Table{Name: tableName, Family: nft.Inet}); err != nil || len(list) != rules {
			t.Errorf("%d rules, want %d (%v)", len(list), rules, err)
		}
		if !full(conn, content("gv0", want)) {
			t.Error("the table is not what it is to be")
		}
	})
	for _, from := range []*linktest.NS{outside, host} {
		for _, at := range []string{"10.9.0.1", "fd09::1"} {
			from.Do(func() {
				if err := said(t, net.JoinHostPort(at, "53")); !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("%s, port 53: %v, want that it is refused", at, err)
				}
				if err := said(t, net.JoinHostPort(at, "54")); err != nil {
					t.Errorf("%s, port 54: %v", at, err)
				}
			})
		}
	}
}

// said is what becomes of a datagram.
func said(t *testing.T, at string) error {
	t.Helper()
	c, err := net.Dial("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(3 * time.Second))
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 10))
	return err
}
