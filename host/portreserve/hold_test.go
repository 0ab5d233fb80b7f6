package portreserve

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

func at(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

// namespace runs f in one that has the addresses 192.0.2.1 and 2001:db8::1.
func namespace(t *testing.T, f func()) {
	t.Helper()
	ns := linktest.New(t)
	ns.Do(func() {
		linktest.Up(t, "lo", "192.0.2.1/32", "2001:db8::1/128")
		f()
	})
}

func listen(network, addr string) error {
	if addr[0] >= '0' && addr[0] <= '9' {
		network += "4" // or Go makes one for both families of 0.0.0.0
	}
	if strings.HasPrefix(network, "udp") {
		c, err := net.ListenPacket(network, addr)
		if err == nil {
			c.Close()
		}
		return err
	}
	l, err := net.Listen(network, addr)
	if err == nil {
		l.Close()
	}
	return err
}

// What is held cannot be listened on, by anybody and in any way; what is not, can.
func TestHold(t *testing.T) {
	for _, network := range []string{"tcp", "udp"} {
		for _, tt := range []struct{ held, refused, free string }{
			{"0.0.0.0:8080", "0.0.0.0:8080 127.0.0.1:8080 192.0.2.1:8080 :8080", "0.0.0.0:8081 [2001:db8::1]:8080"},
			{"192.0.2.1:8080", "0.0.0.0:8080 192.0.2.1:8080 :8080", "127.0.0.1:8080"},
			{"127.0.0.1:8080", "0.0.0.0:8080 127.0.0.1:8080", "192.0.2.1:8080"},
			{"[::]:8080", "[::]:8080 [::1]:8080 :8080", "0.0.0.0:8080"},
		} {
			namespace(t, func() {
				var s Sockets
				for range 2 {
					if err := s.Hold(network, at(tt.held)); err != nil {
						t.Fatal(err)
					}
				}
				for _, a := range strings.Fields(tt.refused) {
					if listen(network, a) == nil {
						t.Errorf("%s %s is held, and %s can be used", network, tt.held, a)
					}
				}
				for _, a := range strings.Fields(tt.free) {
					if err := listen(network, a); err != nil {
						t.Errorf("%s %s is held: %v", network, tt.held, err)
					}
				}
				s.Release(network, at(tt.held))
				s.Release(network, at(tt.held))
				if err := listen(network, tt.held); err != nil {
					t.Errorf("after the release: %v", err)
				}
			})
		}
	}
}

// A process that has the port is found and named.
func TestTaken(t *testing.T) {
	me := fmt.Sprintf("(process %d)", os.Getpid())
	for _, tt := range []struct{ network, theirs, wanted string }{
		{"tcp", "0.0.0.0:8080", "0.0.0.0:8080"},
		{"tcp", ":8080", "127.0.0.1:8080"}, // one socket for both families
		{"tcp", "127.0.0.1:8080", "0.0.0.0:8080"},
		{"udp", "192.0.2.1:8080", "0.0.0.0:8080"},
		{"udp", "[::1]:8080", "[::]:8080"},
	} {
		namespace(t, func() {
			var theirs interface{ Close() error }
			var err error
			if tt.network == "udp" {
				theirs, err = net.ListenPacket(tt.network, tt.theirs)
			} else {
				theirs, err = net.Listen(tt.network, tt.theirs)
			}
			if err != nil {
				t.Fatal(err)
			}
			var s Sockets
			err = s.Hold(tt.network, at(tt.wanted))
			taken, ok := errors.AsType[*TakenError](err)
			if !ok || !strings.HasSuffix(taken.By(), me) {
				t.Errorf("%+v: %v", tt, err)
			}
			theirs.Close()
			if err := s.Hold(tt.network, at(tt.wanted)); err != nil {
				t.Errorf("%+v: after they let it go: %v", tt, err)
			}
			s.Close()
		})
	}
}

// What a server that is gone has left behind takes no port; a socket that is bound and
// does not listen, as those of other agents, does.
func TestRemains(t *testing.T) {
	namespace(t, func() {
		l, err := net.Listen("tcp", "127.0.0.1:8080")
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", "127.0.0.1:8080")
		if err != nil {
			t.Fatal(err)
		}
		a, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		a.Close() // first: TIME-WAIT is on this side
		c.Close()
		l.Close()
		var s, other Sockets
		if !remains(8080) {
			t.Fatal("the test has left nothing behind")
		}
		if err := s.Hold("tcp", at("0.0.0.0:8080")); err != nil {
			t.Fatal(err)
		}
		if listen("tcp", "0.0.0.0:8080") == nil {
			t.Error("held, and it can be used")
		}
		if err := other.Hold("tcp", at("127.0.0.1:8080")); err == nil {
			t.Error("held twice")
		}
		if c, err := net.DialTimeout("tcp", "192.0.2.1:8080", time.Second); err == nil {
			c.Close()
			t.Error("a held port accepts connections")
		}
	})
}

func TestErrors(t *testing.T) {
	namespace(t, func() {
		var s Sockets
		if err := s.Hold("tcp", at("198.51.100.1:80")); err == nil || !strings.Contains(err.Error(), "this host has no address 198.51.100.1") {
			t.Errorf("an address of another host: %v", err)
		}
		if err := s.Hold("icmp", at("192.0.2.1:80")); err == nil || !strings.Contains(err.Error(), "none of tcp, udp and sctp") {
			t.Errorf("icmp: %v", err)
		}
		// With or without SCTP in this kernel.
		for range 2 {
			if err := s.Hold("sctp", at("192.0.2.1:80")); err != nil {
				t.Errorf("sctp: %v", err)
			}
		}
		s.Close()
	})
}

func TestParseSockets(t *testing.T) {
	const text = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0
   1: B80D0120000000000000000001000000:0050 00000000000000000000000000000000:0000 06 00000000:00000000 03:000 0 0 0 12 3 0
   2: nonsense
   3: 0100007F:1F90 00000000:0000 XX 0 0 0 0 0 0 0
`
	got := parseSockets(strings.NewReader(text))
	want := []socket{{at("127.0.0.1:8080"), stateListen, 4711}, {at("[2001:db8::1]:80"), 6, 12}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %v", got)
	}
}

// A run of ports is held wholly or not at all; of a wide one somebody else's port is found, now and
// later, without a socket for each. What is held besides is not taken for somebody else's.
func TestHoldRun(t *testing.T) {
	for _, network := range []string{"tcp", "udp"} {
		for _, more := range []uint16{9, 50000} {
			namespace(t, func() {
				var s Sockets
				if err := s.Hold(network, at("0.0.0.0:10001")); err != nil {
					t.Fatal(err)
				}
				if err := s.Hold(network, at("[::]:10003")); err != nil {
					t.Fatal(err)
				}
				if err := s.HoldRun(network, at("0.0.0.0:10000"), more); err != nil {
					t.Fatalf("%s, %d more: %v", network, more, err)
				}
				if most := 12; len(s.held) > most {
					t.Errorf("%s, %d more: %d sockets", network, more, len(s.held))
				}
				if refused := listen(network, "0.0.0.0:10005") != nil; refused != (more < Wide) {
					t.Errorf("%s, %d more: somebody else is refused: %v", network, more, refused)
				}
				for n := range more + 1 {
					s.Release(network, netip.AddrPortFrom(netip.IPv4Unspecified(), 10000+n))
				}
				// A socket for both families is in the way of one, another one's own is not.
				theirs, err := bound(at("[::]:10005"), map[string]int{"tcp": 1, "udp": 2}[network], 0, false)
				if err != nil {
					t.Fatal(err)
				}
				defer unix.Close(theirs)
				if err := s.HoldRun(network, at("0.0.0.0:10000"), more); err != nil {
					t.Errorf("%s, %d more: the other family's port is in the way: %v", network, more, err)
				}
				for n := range more + 1 {
					s.Release(network, netip.AddrPortFrom(netip.IPv4Unspecified(), 10000+n))
				}
				both, err := net.ListenPacket("udp", ":10006")
				if err != nil {
					t.Fatal(err)
				}
				defer both.Close()
				var taken *TakenError
				err = s.HoldRun("udp", at("0.0.0.0:10000"), more)
				if !errors.As(err, &taken) || taken.Behind(10000) != 6 {
					t.Errorf("%s, %d more: %v", network, more, err)
				}
				if n := len(s.held); n != 1 {
					t.Errorf("%s, %d more: %d are held after the error", network, more, n)
				}
				if err := s.HoldRun(network, at("203.0.113.1:10000"), more); err == nil || !strings.Contains(err.Error(), "this host has no address 203.0.113.1") {
					t.Errorf("%s, %d more: no address of this host: %v", network, more, err)
				}
				s.Close()
			})
		}
	}
}

// The files that the agent needs for all else stay free.
func TestHoldLimit(t *testing.T) {
	namespace(t, func() {
		s := Sockets{limit: 3}
		if err := s.HoldRun("udp", at("0.0.0.0:8080"), 3); err == nil || !strings.Contains(err.Error(), "LimitNOFILE") || len(s.held) != 0 {
			t.Errorf("%v, %d held", err, len(s.held))
		}
	})
}
