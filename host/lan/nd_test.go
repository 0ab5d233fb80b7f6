package lan

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

var mail6 = netip.MustParseAddr("fd00:db8::25")

// TestAddress6: an IPv6 address of ours is there at once, is chosen for nothing, and is told from an administrator's, also
// from one that another program has added in the same way.
func TestAddress6(t *testing.T) {
	linktest.New(t).Do(func() {
		ip(t, "link add eth0 type veth peer name eth1")
		ip(t, "link set eth0 up")
		ip(t, "link set eth1 up")
		ip(t, "addr add fd00:db8::1/64 dev eth0 nodad")
		for range 2 { // again is no error
			if err := Add("eth0", mail6); err != nil {
				t.Fatal(err)
			}
		}
		if p, err := find(mail6); err != nil || p.NIC != "eth0" || !p.Here || !p.Ours {
			t.Errorf("added: %+v, %v", p, err)
		}
		out, err := exec.Command("ip", "-6", "-o", "addr", "show", "to", "fd00:db8::25").CombinedOutput()
		if text := string(out); err != nil || !strings.Contains(text, "deprecated") || strings.Contains(text, "tentative") || !strings.Contains(text, "valid_lft forever") {
			t.Errorf("it is %s, %v", out, err)
		}
		if out, err := exec.Command("ip", "-6", "route", "get", "fd00:db8::99").CombinedOutput(); err != nil || !strings.Contains(string(out), "src fd00:db8::1 ") {
			t.Errorf("this host sends by %s, %v", out, err)
		}
		ip(t, "addr add fd00:db8::26/128 dev eth0 nodad noprefixroute preferred_lft 0 valid_lft forever")
		if v, err := Look(); err != nil || !slices.Equal(v.Ours(), []netip.Addr{mail6}) {
			t.Errorf("ours are %v, %v", v.Ours(), err)
		}
		if p, err := find(netip.MustParseAddr("fd00:db8::")); err != nil || p.NIC != "" {
			t.Errorf("the address of all routers is found at %+v, %v", p, err)
		}
		if gone, err := Purge(); err != nil || !slices.Equal(gone, []string{"fd00:db8::25"}) {
			t.Errorf("purged %v, %v", gone, err)
		}
		if p, _ := find(mail6); p.Here || p.NIC != "eth0" {
			t.Errorf("removed: %+v", p)
		}
	})
}

// TestFailed6: an address of an administrator's that another machine had first is none of this host's.
func TestFailed6(t *testing.T) {
	here, there := linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", here, there, []string{"192.0.2.1/24"}, []string{"192.0.2.2/24"})
	there.Do(func() { ip(t, "addr add fd00:db8::25/64 dev eth0 nodad") })
	here.Do(func() {
		ip(t, "addr add fd00:db8::1/64 dev eth0 nodad")
		if p, err := find(mail6); err != nil || p.NIC != "eth0" {
			t.Errorf("before: %+v, %v", p, err)
		}
		ip(t, "addr add fd00:db8::25/64 dev eth0")
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			out, err := exec.Command("ip", "-6", "-o", "addr", "show", "to", "fd00:db8::25").CombinedOutput()
			if strings.Contains(string(out), "dadfailed") {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("the kernel does not find that another machine has it: %s, %v", out, err)
			}
		}
		if p, err := find(mail6); err != nil || p.Here || p.NIC != "" {
			t.Errorf("another machine has it: %+v, %v", p, err)
		}
	})
}

// TestProbe6: the kernel of whoever has an address answers, and takes an announcement for true.
func TestProbe6(t *testing.T) {
	here, there := linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", here, there, []string{"192.0.2.1/24"}, []string{"192.0.2.2/24"})
	here.Do(func() { ip(t, "addr add fd00:db8::1/64 dev eth0 nodad") })
	there.Do(func() {
		ip(t, "link set eth0 address 02:00:00:00:00:02")
		ip(t, "addr add fd00:db8::2/64 dev eth0 nodad")
	})
	here.Do(func() {
		if err := Add("eth0", mail6); err != nil {
			t.Error(err)
		}
		if who, err := Probe(t.Context(), "eth0", mail6); err != nil || who != nil {
			t.Errorf("%v answers, %v; only this host has it", who, err)
		}
		if who, err := Probe(t.Context(), "eth0", netip.MustParseAddr("fd00:db8::2")); err != nil || who.String() != "02:00:00:00:00:02" {
			t.Errorf("%v answers, %v", who, err)
		}
	})
	there.Do(func() { ip(t, "neigh replace fd00:db8::25 lladdr 02:00:00:00:00:99 dev eth0 nud stale") })
	here.Do(func() {
		if err := Announce("eth0", mail6); err != nil {
			t.Error(err)
		}
	})
	there.Do(func() {
		out, err := exec.Command("ip", "neigh", "show", "fd00:db8::25").CombinedOutput()
		if err != nil || strings.Contains(string(out), "00:99") || !strings.Contains(string(out), "lladdr") {
			t.Errorf("still %s, %v", out, err)
		}
	})
}

func FuzzAdvertiser(f *testing.F) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 2}
	frame := advertisement(mac, mail6)
	if who := advertiser(frame, mail6); who.String() != mac.String() || advertiser(frame, mail) != nil || advertiser(frame[:atOptions], mail6).String() != mac.String() {
		f.Fatalf("an answer is read as %v", who)
	}
	if len(frame) != ethernet+40+int(binary.BigEndian.Uint16(frame[ethernet+4:])) {
		f.Error("its length is not what it says")
	}
	f.Add(frame)
	f.Fuzz(func(t *testing.T, frame []byte) {
		if who := advertiser(frame, mail6); who != nil && len(who) != 6 {
			t.Errorf("%v", who)
		}
	})
}
