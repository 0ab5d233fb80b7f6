package hold

import (
	"net/netip"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/nft"
	"github.com/grapevine-net/grapevine/service"
	"github.com/grapevine-net/grapevine/service/expose"
)

var (
	here = netip.MustParseAddr("192.0.2.1")
	a, b = netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("10.1.0.3")
)

func port(at netip.Addr) netip.AddrPort { return netip.AddrPortFrom(at, 8080) }

// TestStale: connections go on that may; datagrams stay with who gets some.
func TestStale(t *testing.T) {
	const syn, established = nl.TCP_CONNTRACK_SYN_SENT, nl.TCP_CONNTRACK_ESTABLISHED
	led := map[front]expose.Back{
		{expose.Port{Port: 80}, false}:            {To: []netip.AddrPort{port(a)}, Ready: []netip.AddrPort{port(a)}, There: []netip.Addr{a, b}},
		{expose.Port{UDP: true, Port: 80}, false}: {To: []netip.AddrPort{port(a)}, Ready: []netip.AddrPort{port(a), port(b)}, There: []netip.Addr{a, b}},
	}
	s := stale{ours: map[front]bool{{expose.Port{Port: 80}, false}: true, {expose.Port{UDP: true, Port: 80}, false}: true, {expose.Port{UDP: true, Port: 81}, false}: true}, here: map[netip.Addr]bool{here: true}, led: led}
	gone := netip.MustParseAddr("10.1.0.9")
	for _, c := range []struct {
		name  string
		proto uint8
		to    uint16
		at    netip.Addr
		led   netip.Addr
		state uint8
		want  bool
	}{
		{"open, to who gets new ones", service.TCP, 80, here, a, established, false},
		{"open, to who gets none", service.TCP, 80, here, b, established, false},
		{"beginning, to who gets none", service.TCP, 80, here, b, syn, true},
		{"open, to who is gone", service.TCP, 80, here, gone, established, true},
		{"datagrams, to who gets some by other hosts", service.UDP, 80, here, b, 0, false},
		{"datagrams, to who is gone", service.UDP, 80, here, gone, 0, true},
		{"datagrams, from before it was led", service.UDP, 80, here, here, 0, true},
		{"datagrams, of a port that is led no more", service.UDP, 81, here, a, 0, true},
		{"of another port", service.TCP, 82, here, gone, syn, false},
		{"to another host", service.TCP, 80, gone, gone, syn, false},
		{"another protocol", 1, 80, here, gone, 0, false},
	} {
		f := &netlink.ConntrackFlow{}
		f.Forward.Protocol, f.Forward.DstIP, f.Forward.DstPort = c.proto, c.at.AsSlice(), c.to
		f.Reverse.SrcIP, f.Reverse.SrcPort = c.led.AsSlice(), 8080
		if c.led == here {
			f.Reverse.SrcPort = c.to
		}
		if c.proto == service.TCP {
			f.ProtoInfo = &netlink.ProtoInfoTCP{State: c.state}
		}
		if got := s.MatchConntrackFlow(f); got != c.want {
			t.Errorf("%s: forgotten: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestRules: the kernel takes them, what is led is found again by the next agent, and Purge leaves nothing.
func TestRules(t *testing.T) {
	runtime.LockOSThread() // and for good: the thread ends with this goroutine, and its namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("a network namespace: %v", err)
	}
	conn, err := nft.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	six := netip.MustParseAddr("fd00::2")
	want := table{here: []netip.Addr{here, netip.MustParseAddr("2001:db8::1")}, ports: map[front]expose.Back{
		{expose.Port{Port: 80}, false}:            {To: []netip.AddrPort{port(a), port(b)}},
		{expose.Port{UDP: true, Port: 53}, false}: {To: []netip.AddrPort{port(a)}},
		{expose.Port{Port: 80}, true}:             {To: []netip.AddrPort{netip.AddrPortFrom(six, 80)}},
		{expose.Port{Port: 81}, false}:            {},
	}}
	for range 2 {
		if err := conn.Do(whole("gv0", want)); err != nil {
			t.Fatal(err)
		}
	}
	ours := nft.Table{Name: tableName, Family: nft.Inet}
	if list, err := conn.Handles(ours); err != nil || len(list) != rules {
		t.Errorf("%d rules, want %d (%v)", len(list), rules, err)
	}
	found := map[front]bool{}
	for _, f := range families {
		keys, err := conn.Elements(ours, f.ports)
		if err != nil {
			t.Fatal(err)
		}
		portsOf(keys, f.v6, found)
	}
	if len(found) != 3 || !found[front{expose.Port{Port: 80}, true}] || !found[front{expose.Port{UDP: true, Port: 53}, false}] {
		t.Errorf("found again: %v", found)
	}
	if names, err := Purge(); err != nil || len(names) != 1 {
		t.Errorf("purged %v, %v", names, err)
	}
	if names, err := Purge(); err != nil || len(names) != 0 {
		t.Errorf("purged again %v, %v", names, err)
	}
}
