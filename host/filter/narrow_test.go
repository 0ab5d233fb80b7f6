package filter

import (
	"encoding/binary"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestNarrowing: a container that tells its host of small packets on the way to another host is not heard; who is on that way is.
func TestNarrowing(t *testing.T) {
	w := newWorld(t, func() (*Filter, error) { return Open(slog.New(slog.DiscardHandler)) })
	narrow := func(from string, at *linktest.NS, own, far string) bool {
		t.Helper()
		v6 := strings.Contains(own, ":")
		at.Do(func() { run(t, "ip", "route", "flush", "cache"); run(t, "ip", "-6", "route", "flush", "cache") })
		quoted := quote(netip.MustParseAddr(own), netip.MustParseAddr(far), 4789)
		network, message := "ip4:icmp", append([]byte{3, 4, 0, 0, 0, 0, 2, 88}, quoted...)
		if v6 {
			network, message = "ip6:ipv6-icmp", append([]byte{2, 0, 0, 0, 0, 0, 5, 0}, quoted...)
		} else {
			binary.BigEndian.PutUint16(message[2:], ^sum16(message))
		}
		w.at[from].Do(func() {
			c, err := net.Dial(network, own)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for range 3 {
				if _, err := c.Write(message); err != nil {
					t.Fatal(err)
				}
			}
		})
		var route string
		at.Do(func() { route = run(t, "ip", "route", "get", far) })
		return strings.Contains(route, "mtu")
	}
	for _, c := range []struct {
		from  string
		heard bool
	}{{"away", true}, {"web", false}, {"vault", false}, {"plain", false}, {"away", true}} {
		for own, far := range map[string]string{"10.9.0.1": "10.9.0.3", "fd00:9::1": "fd00:9::3"} {
			if got := narrow(c.from, w.host, own, far); got != c.heard {
				t.Errorf("%s says that the way from %s to %s is narrow: heard %t, want %t", c.from, own, far, got, c.heard)
			}
			if c.from == "vault" { // nothing of it leaves
				continue
			}
			if got := narrow(c.from, w.at["vtep"], far, own); got != c.heard {
				t.Errorf("%s tells another host that its way from %s to %s is narrow: heard %t, want %t", c.from, far, own, got, c.heard)
			}
		}
	}
	// Of other ways a container may speak.
	if !narrow("web", w.host, "10.9.0.1", "10.9.0.2") {
		t.Error("of the way to a machine that is no host nothing is heard")
	}
}

// quote is the beginning of a datagram of UDP, as an ICMP error has it.
func quote(from, to netip.Addr, port uint16) []byte {
	be := binary.BigEndian
	udp := be.AppendUint16(be.AppendUint16(be.AppendUint16(be.AppendUint16(nil, port), port), 1400), 0)
	if from.Is6() {
		head := append([]byte{0x60, 0, 0, 0, 1400 >> 8, 1400 & 255, 17, 64}, append(from.AsSlice(), to.AsSlice()...)...)
		return append(append(head, udp...), make([]byte, 8)...)
	}
	head := []byte{0x45, 0, 1420 >> 8, 1420 & 255, 0, 1, 0x40, 0, 64, 17, 0, 0}
	head = append(append(head, from.AsSlice()...), to.AsSlice()...)
	be.PutUint16(head[10:], ^sum16(head))
	return append(append(head, udp...), make([]byte, 8)...)
}

func sum16(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}
