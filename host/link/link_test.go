package link

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// addLink makes an interface of the given type in the present namespace.
func addLink(t *testing.T, l netlink.Link, name string) {
	t.Helper()
	l.Attrs().Name = name
	if err := netlink.LinkAdd(l); err != nil {
		t.Fatal(err)
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestVeth(t *testing.T) {
	mac, _ := net.ParseMAC("02:42:0a:80:00:07")
	v := Veth{Name: "gv1", Peer: "gvp1", PeerMAC: mac, MTU: 1450, Alias: "grapevine: e1"}
	ns, sandbox := linktest.New(t), linktest.New(t)
	ns.Do(func() {
		ok(t, v.Ensure())
		first, err := Get("gv1")
		ok(t, err)
		if !first.Up || first.MTU != 1450 || first.Alias != "grapevine: e1" {
			t.Errorf("host's end is %+v", first)
		}
		if p, err := Get("gvp1"); err != nil || p.Up || p.MTU != 1450 || p.MAC.String() != mac.String() {
			t.Errorf("peer is %+v, %v", p, err)
		}

		v.MTU = 1400
		ok(t, v.Ensure())
		if l, _ := Get("gv1"); l.Index != first.Index || l.MTU != 1400 {
			t.Errorf("after a change of MTU it is %+v, was %+v", l, first)
		}

		// The peer is gone into a sandbox: the pair is made anew.
		peer, err := netlink.LinkByName("gvp1")
		ok(t, err)
		ok(t, netlink.LinkSetNsFd(peer, sandbox.FD()))
		ok(t, v.Ensure())
		if l, _ := Get("gv1"); l.Index == first.Index {
			t.Error("a pair without its peer was kept")
		}

		if all, err := List("gv"); err != nil || len(all) != 2 {
			t.Errorf("list has %v, %v", all, err)
		}
		ok(t, Delete("gv1"))
		ok(t, Delete("gv1"))
		if all, _ := List("gv"); len(all) != 0 {
			t.Errorf("left after delete: %v", all)
		}
		if _, err := Get("gv1"); !errors.Is(err, ErrNotFound) {
			t.Errorf("get of a deleted interface: %v", err)
		}
	})
}

func TestVethLeavesOthersAlone(t *testing.T) {
	linktest.New(t).Do(func() {
		addLink(t, &netlink.Bridge{}, "gv1")
		err := Veth{Name: "gv1", Peer: "gvp1"}.Ensure()
		if err == nil || !strings.Contains(err.Error(), "gv1 is a bridge") {
			t.Errorf("a bridge in the way: %v", err)
		}
		if _, err := Get("gv1"); err != nil {
			t.Error("the bridge is gone")
		}
		if err := (Veth{Name: "gv2", Peer: "gv1"}).Ensure(); err == nil || !strings.Contains(err.Error(), "gv1 is a bridge") {
			t.Errorf("a bridge in the way of the other end: %v", err)
		}
		if err := Stranger("gv1"); err == nil || Stranger("none") != nil {
			t.Errorf("a bridge in place of a port of Open vSwitch's: %v", err)
		}
	})
}

func TestForUserspace(t *testing.T) {
	linktest.New(t).Do(func() {
		ok(t, Veth{Name: "gv1", Peer: "gvp1"}.Ensure())
		ok(t, ForUserspace("gvp1", true))
		check := func(want map[string]bool) {
			t.Helper()
			have, err := Features("gvp1")
			ok(t, err)
			for n, on := range want {
				if have[n] != on {
					t.Errorf("%s is %v", n, have[n])
				}
			}
		}
		check(map[string]bool{
			"tx-checksum-ip-generic": true, "tx-tcp-segmentation": true, "tx-generic-segmentation": true,
			"tx-udp-segmentation": false, "tx-udp_tnl-segmentation": false, "tx-sctp-segmentation": false, "tx-checksum-sctp": false,
		})
		ok(t, ForUserspace("gvp1", false))
		check(map[string]bool{"tx-checksum-ip-generic": false, "tx-tcp-segmentation": false, "tx-tcp6-segmentation": false})

		ok(t, SetFeatures("gvp1", map[string]bool{"tx-checksum-ip-generic": true, "no-such-feature": false}))
		check(map[string]bool{"tx-checksum-ip-generic": true})
		if err := SetFeatures("gvp1", map[string]bool{"no-such-feature": true}); err == nil {
			t.Error("an unknown feature was turned on")
		}
		if err := ForUserspace("gvnone", true); !errors.Is(err, ErrNotFound) {
			t.Errorf("no interface: %v", err)
		}
	})
}

func TestUserspaceFeaturesOfKernelsToCome(t *testing.T) {
	got := userspaceFeatures(map[string]bool{"tx-quantum-segmentation": true, "rx-gro": true, "tx-tcp-segmentation": true}, true)
	if len(got) != 1 || got["tx-quantum-segmentation"] {
		t.Errorf("to be set: %v", got)
	}
}

func TestFindUnderlay(t *testing.T) {
	a, b := linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", a, b, []string{"10.9.0.1/24", "fd09::1/64"}, nil)
	linktest.Wire(t, "eth1", a, b, []string{"10.8.0.1/24"}, nil)
	a.Do(func() {
		if _, err := FindUnderlay(Want{}); err == nil || !strings.Contains(err.Error(), "set GRAPEVINE_ADVERTISE") {
			t.Errorf("no default route: %v", err)
		}
		find := func(advertise, dev, addr string) {
			t.Helper()
			want := Want{Interface: advertise}
			if a, err := netip.ParseAddr(advertise); err == nil {
				want = Want{Addr: a}
			}
			u, err := FindUnderlay(want)
			if err != nil || u != (Underlay{dev, netip.MustParseAddr(addr), 1500}) {
				t.Errorf("advertise %q: %+v, %v", advertise, u, err)
			}
		}
		find("fd09::1", "eth0", "fd09::1")
		find("10.8.0.1", "eth1", "10.8.0.1")
		find("eth0", "eth0", "10.9.0.1")
		find("eth1", "eth1", "10.8.0.1")
		nat := Want{Addr: netip.MustParseAddr("198.51.100.1"), Bind: netip.MustParseAddr("10.8.0.1")}
		if u, err := FindUnderlay(nat); err != nil || u != (Underlay{"eth1", nat.Addr, 1500}) {
			t.Errorf("behind NAT: %+v, %v", u, err)
		}
		if u, err := FindUnderlay(Want{Bind: nat.Bind}); err != nil || u != (Underlay{"eth1", nat.Bind, 1500}) {
			t.Errorf("bound to an address: %+v, %v", u, err)
		}
		if _, err := FindUnderlay(Want{Interface: "eth7"}); err == nil {
			t.Error("an interface that the host does not have")
		}
		defaultRoute(t, "fd09::2", 0)
		find("", "eth0", "fd09::1")
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		old := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP("fd09::5"), Mask: net.CIDRMask(64, 128)}, ValidLft: 1000, PreferedLft: 0, Flags: unix.IFA_F_NODAD}
		if err := netlink.AddrReplace(l, old); err != nil {
			t.Fatal(err)
		}
		find("", "eth0", "fd09::1") // fd09::5, which comes first, is deprecated
		defaultRoute(t, "10.8.0.2", 200)
		find("", "eth1", "10.8.0.1")
		defaultRoute(t, "10.9.0.2", 100)
		find("", "eth0", "10.9.0.1")
		if _, err := FindUnderlay(Want{Addr: netip.MustParseAddr("10.7.0.1")}); err == nil {
			t.Error("an address that the host does not have")
		}
	})
}

func defaultRoute(t *testing.T, via string, metric int) {
	t.Helper()
	ok(t, netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(via), Priority: metric}))
}

func TestConsume(t *testing.T) {
	host, container := linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", host, container, []string{"10.9.0.1/24"}, nil)
	request := append([]byte("\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x07\x08\x06"+
		"\x00\x01\x08\x00\x06\x04\x00\x01\x02\x00\x00\x00\x00\x07\x0a\x09\x00\x02"+
		"\x00\x00\x00\x00\x00\x00\x0a\x09\x00\x01"), make([]byte, 18)...)
	var asSwitch, asContainer *linktest.Socket
	host.Do(func() { asSwitch = linktest.Open(t, "eth0") })
	container.Do(func() { asContainer = linktest.Open(t, "eth0") })

	asContainer.Send(request)
	if receiveARP(asContainer, time.Second) == nil {
		t.Fatal("without Consume the host should answer: the test shows nothing")
	}
	for asSwitch.Receive(100*time.Millisecond) != nil {
	}
	host.Do(func() {
		ok(t, Consume("eth0"))
		ok(t, Consume("eth0"))
	})
	asContainer.Send(request)
	if f := receiveARP(asSwitch, time.Second); string(f) != string(request) {
		t.Errorf("the switch received %x", f)
	}
	if f := receiveARP(asContainer, 200*time.Millisecond); f != nil {
		t.Errorf("the host answered %x", f)
	}
}

// receiveARP passes over what is no ARP: the kernel's own multicast listener reports.
func receiveARP(s *linktest.Socket, timeout time.Duration) []byte {
	for end := time.Now().Add(timeout); ; {
		f := s.Receive(time.Until(end))
		if f == nil || string(f[12:14]) == "\x08\x06" {
			return f
		}
	}
}

func TestGrowBuffers(t *testing.T) {
	linktest.New(t).Do(func() {
		ok(t, Veth{Name: "gv1", Peer: "other"}.Ensure())
		ours, others := linktest.Open(t, "gv1"), linktest.Open(t, "other")
		before := others.ReceiveBuffer()
		ok(t, GrowBuffers(os.Getpid()))
		if got := ours.ReceiveBuffer(); got != 2*packetBuffer {
			t.Errorf("the buffer has %d bytes", got)
		}
		if got := others.ReceiveBuffer(); got != before {
			t.Errorf("another interface's buffer went from %d to %d bytes", before, got)
		}
		if err := GrowBuffers(1 << 22); err == nil {
			t.Error("no error for a process that there is not")
		}
	})
}
