package lan

import (
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

var mail = netip.MustParseAddr("192.0.2.25")

func ip(t *testing.T, args string) {
	t.Helper()
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", args, err, out)
	}
}

func find(a netip.Addr) (Place, error) {
	v, err := Look()
	return v.Find(a), err
}

// TestAddress: an address comes to the interface with the narrowest subnet that has it, with a mark by which it is ours
// to remove. An administrator's stays.
func TestAddress(t *testing.T) {
	linktest.New(t).Do(func() {
		if p, err := find(mail); err != nil || p.NIC != "" {
			t.Errorf("found %+v, %v, on a host without a LAN", p, err)
		}
		const long = "enx0123456789ab"
		for nic, subnet := range map[string]string{"wide": "192.0.0.0/16", long: "192.0.2.1/24"} {
			ip(t, "link add "+nic+" type veth peer name "+nic[:3])
			ip(t, "addr add "+subnet+" dev "+nic)
			ip(t, "link set "+nic+" up")
			ip(t, "link set "+nic[:3]+" up")
		}
		if p, err := find(mail); err != nil || p.NIC != long || p.Here {
			t.Errorf("found %+v, %v", p, err)
		}
		for range 2 { // again is no error
			if err := Add(long, mail); err != nil {
				t.Fatal(err)
			}
		}
		if p, err := find(mail); err != nil || p.NIC != long || !p.Here || !p.Ours {
			t.Errorf("added: %+v, %v", p, err)
		}
		if v, err := Look(); err != nil || !slices.Equal(v.Ours(), []netip.Addr{mail}) {
			t.Errorf("ours are %v, %v", v.Ours(), err)
		}
		if err := Remove(mail); err != nil {
			t.Fatal(err)
		}
		ip(t, "addr add 192.0.2.25/32 dev wide")
		if p, err := find(mail); err != nil || p.NIC != "wide" || !p.Here || p.Ours {
			t.Errorf("an administrator's: %+v, %v", p, err)
		}
		if gone, err := Purge(); err != nil || len(gone) != 0 {
			t.Errorf("purged %v, %v", gone, err)
		}
		if p, _ := find(mail); !p.Here {
			t.Error("an administrator's address is removed")
		}
	})
}

// TestNoLAN: what no machine can have on a LAN has no place: a subnet's first and last address, and Docker's bridges.
func TestNoLAN(t *testing.T) {
	linktest.New(t).Do(func() {
		for nic, subnet := range map[string]string{"eth0": "192.0.2.1/24", "docker0": "172.17.0.1/16", "br-0123456789ab": "172.18.0.1/16", "eth1": "198.51.100.0/31"} {
			ip(t, "link add "+nic+" type bridge")
			ip(t, "addr add "+subnet+" dev "+nic)
			ip(t, "link set "+nic+" up")
		}
		for addr, nic := range map[string]string{
			"192.0.2.0": "", "192.0.2.255": "", "192.0.2.254": "eth0", "192.0.2.1": "eth0", "198.51.100.1": "eth1",
			"172.17.0.1": "", "172.17.0.9": "", "172.18.0.9": "",
		} {
			if p, err := find(netip.MustParseAddr(addr)); err != nil || p.NIC != nic {
				t.Errorf("%s is found at %+v, %v; want %q", addr, p, err, nic)
			}
		}
	})
}

// TestCut: an interface without a link is told, whatever it stands on, and that it has one again. An address of ours follows the
// subnet, or a link of another interface on the same LAN.
func TestCut(t *testing.T) {
	here, there := linktest.New(t), linktest.New(t)
	wire := func(nic, addr string) {
		var addrs []string
		if addr != "" {
			addrs = []string{addr}
		}
		linktest.Wire(t, nic, here, there, addrs, nil)
	}
	is := func(what, nic string, on, cut, ours bool) {
		t.Helper()
		here.Do(func() {
			// What stands on others follows them within a second.
			for end := time.Now().Add(5 * time.Second); nic != "" && Linked(nic) == cut && time.Now().Before(end); time.Sleep(time.Millisecond) {
			}
			if p, err := find(mail); err != nil || p.NIC != nic || p.Here != on || p.Cut != cut || p.Ours != ours || Linked(nic) == (cut || nic == "") {
				t.Errorf("%s: %+v, %v", what, p, err)
			}
		})
	}
	at := func(ns *linktest.NS, args string) { ns.Do(func() { ip(t, args) }) }
	add := func(nic string) {
		here.Do(func() {
			if err := Add(nic, mail); err != nil {
				t.Fatal(err)
			}
		})
	}
	wire("eth0", "192.0.2.1/24")
	is("no address yet", "eth0", false, false, false)
	add("eth0")
	is("held", "eth0", true, false, true)
	at(there, "link set eth0 down")
	is("the cable is out", "eth0", true, true, true)
	at(there, "link set eth0 up")
	is("in again", "eth0", true, false, true)
	at(here, "link set eth0 down")
	is("set down", "eth0", true, true, true)
	at(here, "link set eth0 up")

	// Another interface on the same LAN takes its place while it has no link, and keeps it.
	wire("eth1", "192.0.2.9/24")
	is("two, of which one has it", "eth0", true, false, true)
	at(there, "link set eth0 down")
	is("the other one has a link", "eth1", false, false, true)
	here.Do(func() {
		if err := Remove(mail); err != nil {
			t.Error(err)
		}
	})
	add("eth1")
	at(there, "link set eth0 up")
	is("both have one again", "eth1", true, false, true)

	// Not one on another LAN, however wide.
	at(there, "link set eth1 down")
	at(here, "addr del 192.0.2.1/24 dev eth0")
	at(here, "addr add 192.0.2.1/16 dev eth0")
	is("a wider subnet", "eth1", true, true, true)
	at(here, "addr del 192.0.2.9/24 dev eth1")
	is("the subnet is gone from where it is", "eth0", false, false, true)
	at(here, "addr del 192.0.2.1/16 dev eth0")
	is("no subnet at all", "", false, false, true)

	// What stands on others has a link if one of them has.
	at(here, "link add name br0 type bridge")
	at(here, "link set br0 up")
	at(here, "addr add 192.0.2.1/24 dev br0")
	for _, nic := range []string{"eth0", "eth1"} {
		at(here, "link set "+nic+" master br0 up")
	}
	is("a bridge with one link", "br0", false, false, true)
	at(there, "link set eth0 down")
	is("a bridge without", "br0", false, true, true)
	at(here, "addr flush dev br0")
	at(here, "link set eth0 nomaster")
	at(here, "link add link eth0 name over type macvlan mode bridge")
	at(here, "link set over up")
	at(here, "addr add 192.0.2.1/24 dev over")
	is("on an interface without one", "over", false, true, true)
	at(there, "link set eth0 up")
	is("on one with a link", "over", false, false, true)
}

// TestCut6: the same of IPv6. Who sets an interface down takes its addresses along, and the LAN's subnet with them.
func TestCut6(t *testing.T) {
	here, there := linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", here, there, []string{"fd00:db8::1/64"}, nil)
	here.Do(func() {
		if err := Add("eth0", mail6); err != nil {
			t.Fatal(err)
		}
	})
	there.Do(func() { ip(t, "link set eth0 down") })
	here.Do(func() {
		if p, err := find(mail6); err != nil || !p.Here || !p.Cut {
			t.Errorf("without a link: %+v, %v", p, err)
		}
		ip(t, "link set eth0 down")
		if p, err := find(mail6); err != nil || p.Here || p.NIC != "" {
			t.Errorf("set down: %+v, %v", p, err)
		}
	})
}

// TestEthernet: an address comes to an interface where others can be asked for it, which a tunnel is not, however narrow
// its subnet.
func TestEthernet(t *testing.T) {
	v := View{
		[]assigned{{link: 1, prefix: netip.MustParsePrefix("192.0.2.9/29")}, {link: 2, prefix: netip.MustParsePrefix("192.0.2.24/29")}, {link: 3, prefix: netip.MustParsePrefix("192.0.2.1/24")}},
		map[int]*netlink.LinkAttrs{1: {Name: "tun0", Flags: net.FlagUp}, 2: {Name: "tun1", Flags: net.FlagUp}, 3: {Name: "eth0", Flags: net.FlagUp, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 3}}},
	}
	for a, nic := range map[string]string{"192.0.2.25": "eth0", "192.0.2.99": "eth0", "192.0.2.9": "tun0"} { // the last one is an administrator's
		if p := v.Find(netip.MustParseAddr(a)); p.NIC != nic {
			t.Errorf("%s is found at %+v, want %s", a, p, nic)
		}
	}
}

// TestProbe: who has an address answers, and nobody else; our own does not count.
func TestProbe(t *testing.T) {
	here, there := linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", here, there, []string{"192.0.2.25/24"}, []string{"192.0.2.2/24"})
	there.Do(func() { ip(t, "link set eth0 address 02:00:00:00:00:02") })
	here.Do(func() {
		if who, err := Probe(t.Context(), "eth0", mail); err != nil || who != nil {
			t.Errorf("%v answers, %v; only this host has it", who, err)
		}
		if who, err := Probe(t.Context(), "eth0", netip.MustParseAddr("192.0.2.2")); err != nil || who.String() != "02:00:00:00:00:02" {
			t.Errorf("%v answers, %v", who, err)
		}
	})
	// Others take to whom they were told.
	there.Do(func() { ip(t, "neigh replace 192.0.2.25 lladdr 02:00:00:00:00:99 dev eth0 nud stale") })
	here.Do(func() {
		if err := Announce("eth0", mail); err != nil {
			t.Error(err)
		}
	})
	there.Do(func() {
		out, err := exec.Command("ip", "neigh", "show", "192.0.2.25").CombinedOutput()
		if err != nil || strings.Contains(string(out), "00:99") {
			t.Errorf("still %s, %v", out, err)
		}
	})
}

// TestPing: of an address that is on no LAN the host answers to which the routers lead, and nobody else. It is found there,
// and is off every LAN before.
func TestPing(t *testing.T) {
	here, there := linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", here, there, []string{"192.0.2.1/24", "fd00:2::1/64"}, []string{"192.0.2.2/24", "fd00:2::2/64"})
	for _, text := range []string{"203.0.113.25", "2001:db8:113::25"} {
		a := netip.MustParseAddr(text)
		via := map[bool]string{false: "192.0.2.2", true: "fd00:2::2"}[a.Is6()]
		asks := func(what string, want bool) {
			t.Helper()
			here.Do(func() {
				if who, err := Probe(t.Context(), Loopback, a); err != nil || (who != nil) != want || len(who) != 0 {
					t.Errorf("%v, %s: %v answers, %v", a, what, who, err)
				}
			})
		}
		asks("no way to it", false)
		here.Do(func() { ip(t, "route add "+text+" via "+via) })
		asks("a way, and nobody there", false)
		there.Do(func() {
			if p, err := find(a); err != nil || !p.Off {
				t.Errorf("%v is at %+v, %v", a, p, err)
			}
			if err := Add(Loopback, a); err != nil {
				t.Fatal(err)
			}
			if p, err := find(a); err != nil || p.Off || p.NIC != Loopback || !p.Here || !p.Ours {
				t.Errorf("%v is at %+v, %v, once it was added", a, p, err)
			}
		})
		asks("somebody there", true)
		there.Do(func() {
			if err := Remove(a); err != nil {
				t.Fatal(err)
			}
			if p, err := find(netip.MustParseAddr(via)); err != nil || p.Off {
				t.Errorf("an address of a LAN: %+v, %v", p, err)
			}
		})
		asks("gone again", false)
	}
}

func FuzzHolder(f *testing.F) {
	frame := append([]byte("\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x02\x08\x06\x00\x01\x08\x00\x06\x04\x00\x02\x02\x00\x00\x00\x00\x02"), 192, 0, 2, 25)
	frame = append(frame, make([]byte, 28)...)
	if holder(frame, mail).String() != "02:00:00:00:00:02" {
		f.Fatal("an answer is not read")
	}
	f.Add(frame)
	f.Fuzz(func(t *testing.T, frame []byte) {
		if who := holder(frame, mail); who != nil && len(who) != 6 {
			t.Errorf("%v", who)
		}
	})
}
