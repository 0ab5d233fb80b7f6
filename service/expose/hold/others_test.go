package hold

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/host/nft"
	"github.com/grapevine-net/grapevine/service"
	"github.com/grapevine-net/grapevine/service/expose"
)

func run(t *testing.T, argv ...string) {
	t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", argv, err, out)
	}
}

// TestOthersKeep: a port that a rule of another program leads elsewhere, without a socket, is led there yet when it is exposed,
// and that is noticed.
func TestOthersKeep(t *testing.T) {
	host, outside := linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", host, outside, []string{"192.0.2.1/24"}, []string{"192.0.2.9/24"})
	to := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(here, port) }
	var has table
	host.Do(func() {
		for port, says := range map[uint16]string{9000: "another program", 9001: "the replica"} {
			l, err := net.Listen("tcp", to(port).String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = io.WriteString(c, says)
					_ = c.Close()
				}
			}()
		}
		conn, err := nft.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		led := expose.Back{To: []netip.AddrPort{to(9001)}, Ready: []netip.AddrPort{to(9001)}}
		has = table{here: []netip.Addr{here}, ports: map[front]expose.Back{{expose.Port{Port: 443}, false}: led, {expose.Port{Port: 444}, false}: led}}
		if err := conn.Do(whole("gv0", has)); err != nil {
			t.Fatal(err)
		}
	})
	away := func() (found map[expose.Port]netip.AddrPort) {
		host.Do(func() { found = strayed(has, func(netip.Addr) bool { return false }) })
		return found
	}
	want := func(port uint16, who string) {
		t.Helper()
		outside.Do(func() {
			c, err := net.DialTimeout("tcp", to(port).String(), 10*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if got, err := io.ReadAll(c); string(got) != who {
				t.Errorf("port %d is answered by %q, want %q (%v)", port, got, who, err)
			}
		})
	}
	want(443, "the replica")
	if found := away(); len(found) > 0 {
		t.Errorf("before another program leads anything, connections went to %v", found)
	}
	host.Do(func() {
		run(t, "nft", "add table ip another; add chain ip another in { type nat hook prerouting priority -100; }; add rule ip another in tcp dport 443 redirect to :9000")
	})
	want(443, "another program")
	want(444, "the replica")
	// What it takes is found, by any rule: here one that leads all ports, which nobody would find by the port's number.
	host.Do(func() {
		run(t, "nft", "add rule ip another in ip saddr 192.0.2.0/24 tcp dport 444-60000 redirect to :9000")
	})
	want(444, "another program")
	if found := away(); len(found) != 2 || found[expose.Port{Port: 443}] != to(9000) || found[expose.Port{Port: 444}] != to(9000) {
		t.Errorf("connections went to %v, as far as is known", found)
	}
}

// TestEmptied: what somebody takes out of the rules, or of their sets, is there again after a glance.
func TestEmptied(t *testing.T) {
	b := newBefore(t)
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: here.AsSlice(), Mask: net.CIDRMask(32, 32)}})
	}
	if err != nil {
		t.Fatal(err)
	}
	b.put(cluster.Endpoint{ID: "web", Network: "blue", Host: b.state.Self(), Name: "web", Addrs: []netip.Addr{a}})
	b.room = New(Config{Self: b.state.Self(), Gateway: "gv0", Source: b, Heed: expose.Services, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(b.room.held.Close)
	conn, err := nft.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, harm := range []string{"", "flush map inet " + tableName + " ports4", "flush set inet " + tableName + " here4", "flush chain inet " + tableName + " arrives", "flush ruleset"} {
		if harm != "" {
			run(t, "nft", harm)
		}
		b.after(glance)
		handles, err := conn.Handles(nft.Table{Name: tableName, Family: nft.Inet})
		if !full(conn, content("gv0", b.room.has)) || len(handles) != rules || len(b.room.has.ports) != 2 || len(b.room.has.here) != 1 {
			t.Errorf("after %q: %d rules of %+v (%v)", harm, len(handles), b.room.has, err)
		}
	}
}

type known struct{ *cluster.State }

func (known) Watch() <-chan struct{} { return nil }

// TestStrays: of the kernel's entries those are found that went elsewhere, of both families and protocols, among many that are
// of nobody's interest, of which none is kept; and what is in a message is not trusted.
func TestStrays(t *testing.T) {
	const many = 2000
	here6, replica, elsewhere := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("10.128.0.5"), netip.MustParseAddr("192.0.2.7")
	ready := func(a netip.Addr) expose.Back {
		return expose.Back{To: []netip.AddrPort{netip.AddrPortFrom(a, 8080)}, Ready: []netip.AddrPort{netip.AddrPortFrom(a, 8080)}}
	}
	tcp, udp := expose.Port{Port: 443}, expose.Port{UDP: true, Port: 53}
	has := table{here: []netip.Addr{here, here6}, ports: map[front]expose.Back{
		{tcp, false}: ready(replica), {udp, false}: ready(replica), {expose.Port{Port: 80}, false}: ready(replica), {expose.Port{Port: 8443}, true}: ready(replica),
	}}
	linktest.New(t).Do(func() {
		entry := func(proto uint8, from, at, to netip.AddrPort) {
			t.Helper()
			family, tuple := uint8(unix.AF_INET), func(src, dst netip.AddrPort) netlink.IPTuple {
				return netlink.IPTuple{SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice(), SrcPort: src.Port(), DstPort: dst.Port(), Protocol: proto}
			}
			if at.Addr().Is6() {
				family = unix.AF_INET6
			}
			f := &netlink.ConntrackFlow{FamilyType: family, Forward: tuple(from, at), Reverse: tuple(to, from), TimeOut: 600}
			if proto == service.TCP {
				f.ProtoInfo = &netlink.ProtoInfoTCP{State: nl.TCP_CONNTRACK_ESTABLISHED}
			}
			if err := netlink.ConntrackCreate(netlink.ConntrackTable, netlink.InetFamily(family), f); err != nil {
				t.Fatal(err)
			}
		}
		who, who6 := netip.MustParseAddr("198.51.100.9"), netip.MustParseAddr("2001:db8::9")
		port := netip.AddrPortFrom
		for n := range many { // of other ports
			entry(service.UDP, port(who, uint16(10000+n)), port(here, 5000), port(here, 5000))
		}
		entry(service.TCP, port(who, 1), port(here, 443), port(replica, 8080))  // as it is to be
		entry(service.TCP, port(who, 2), port(here, 80), port(here, 80))        // as nobody leads it
		entry(service.TCP, port(who, 3), port(elsewhere, 443), port(who, 9000)) // through this host
		find := func() map[expose.Port]netip.AddrPort {
			return strayed(has, func(a netip.Addr) bool { return a == netip.MustParseAddr("10.128.0.6") })
		}
		entry(service.TCP, port(who, 4), port(here, 443), port(netip.MustParseAddr("10.128.0.6"), 8080)) // one that was a replica
		if found := find(); len(found) > 0 {
			t.Errorf("found: %v", found)
		}
		entry(service.TCP, port(who, 5), port(here, 443), port(elsewhere, 9000))
		entry(service.UDP, port(who, 6), port(here, 53), port(elsewhere, 9001))
		entry(service.TCP, port(who6, 7), port(here6, 8443), port(netip.MustParseAddr("2001:db8::7"), 9002))
		want := map[expose.Port]netip.AddrPort{tcp: port(elsewhere, 9000), udp: port(elsewhere, 9001), {Port: 8443}: port(netip.MustParseAddr("2001:db8::7"), 9002)}
		if found := find(); !maps.Equal(found, want) {
			t.Errorf("found: %v, want %v", found, want)
		}
		// A room tells them while the ports are those of the same exposures, and for a while after the last of them.
		state := cluster.New("1111111111111111")
		if _, _, err := state.Put(cluster.Subnet{Prefix: netip.MustParsePrefix("10.128.0.0/22"), Network: "blue", Home: "1111111111111111"}); err != nil {
			t.Fatal(err)
		}
		r := &Room{cfg: Config{Source: known{state}}, leads: has, wanted: map[expose.Port]string{tcp: "web", udp: "dns"}}
		now := time.Now()
		tell := func(when time.Time, want string) {
			t.Helper()
			r.peek(when)
			text := ""
			for _, s := range r.Strays() {
				text += fmt.Sprint(s.Text(), " ", s.Name, " ", s.To, "; ")
			}
			if text != want {
				t.Errorf("told is %q, want %q", text, want)
			}
		}
		tell(now, "53/udp dns 192.0.2.7:9001; 443/tcp web 192.0.2.7:9000; ")
		r.leads = table{}
		tell(now.Add(memory), "53/udp dns 192.0.2.7:9001; 443/tcp web 192.0.2.7:9000; ")
		r.wanted = map[expose.Port]string{tcp: "another", udp: "dns"}
		tell(now.Add(memory), "53/udp dns 192.0.2.7:9001; ")
		tell(now.Add(memory+1), "")
		s := strays{here: map[netip.Addr]bool{here: true}, led: has.ports, cluster: func(netip.Addr) bool { return false }, found: map[expose.Port]netip.AddrPort{}}
		ask := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
		ask.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET, Version: nl.NFNETLINK_V0})
		list, err := ask.Execute(unix.NETLINK_NETFILTER, 0)
		if err != nil || len(list) < many {
			t.Fatal(len(list), err)
		}
		for _, m := range list[:100] {
			for n := range m {
				s.look(m[nl.SizeofNfgenmsg:][:max(0, n-nl.SizeofNfgenmsg)]) // does not panic
				m[n] ^= 0xff
				s.look(m[nl.SizeofNfgenmsg:])
				m[n] ^= 0xff
			}
		}
		if n := testing.AllocsPerRun(100, func() { s.look(list[0][nl.SizeofNfgenmsg:]) }); n > 0 {
			t.Errorf("of one entry there are %v allocations", n)
		}
	})
}
