package conntrack

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

type to uint16

func (p to) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	return f.Forward.Protocol == unix.IPPROTO_UDP && f.Forward.DstPort == uint16(p) && f.Forward.DstIP.String() == "10.9.0.1" && f.Reverse.SrcPort == uint16(p)
}

// What is matched is forgotten, and nothing else, however many there are, and no more is kept of them than one.
func TestForget(t *testing.T) {
	ns, other := linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", ns, other, []string{"10.9.0.2/24"}, []string{"10.9.0.1/24"})
	ns.Do(func() {
		linktest.Up(t, "lo")
		const many = 500
		for i := range many {
			for _, port := range []uint16{53, 54} {
				remember(t, netip.AddrPortFrom(netip.MustParseAddr("10.9.0.2"), uint16(1000+i)), netip.AddrPortFrom(netip.MustParseAddr("10.9.0.1"), port))
			}
		}
		if n := count(t); n != 2*many {
			t.Fatalf("the kernel remembers %d, want %d", n, 2*many)
		}
		if err := Forget(unix.AF_INET, to(53)); err != nil {
			t.Fatal(err)
		}
		if n := count(t); n != many {
			t.Errorf("the kernel remembers %d, want %d", n, many)
		}
		if err := Forget(unix.AF_INET, to(54)); err != nil {
			t.Fatal(err)
		}
		if n := count(t); n != 0 {
			t.Errorf("the kernel remembers %d still", n)
		}
	})
}

func count(t *testing.T) (n int) {
	if err := Each(unix.AF_INET, func(entry []byte) {
		if from, proto := From(Begun(entry)); proto == unix.IPPROTO_UDP && from.Addr() == netip.MustParseAddr("10.9.0.2") {
			n++
		}
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// remember has the kernel take a connection for one that it has seen.
func remember(t *testing.T, from, at netip.AddrPort) {
	t.Helper()
	ends := func(a, b netip.AddrPort) netlink.IPTuple {
		return netlink.IPTuple{Protocol: unix.IPPROTO_UDP, SrcIP: net.IP(a.Addr().AsSlice()), SrcPort: a.Port(), DstIP: net.IP(b.Addr().AsSlice()), DstPort: b.Port()}
	}
	flow := &netlink.ConntrackFlow{FamilyType: unix.AF_INET, Forward: ends(from, at), Reverse: ends(at, from), TimeOut: 600}
	if err := netlink.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, flow); err != nil {
		t.Fatalf("remember a connection: %v", err)
	}
}
