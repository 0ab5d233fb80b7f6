package filter

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/host/nat"
)

// TestServed: what has an egress leaves with its address or not at all, whatever NAT there is: another program's of
// iptables, one's own that comes before ours, which is told, none, or none after `nft flush ruleset`.
func TestServed(t *testing.T) {
	w := newWorld(t, func() (*Filter, error) { return Open(slog.New(slog.DiscardHandler)) })
	if _, is := w.filter.with.(*tables); !is {
		t.Fatal("this kernel has no nf_tables")
	}
	cfg := config
	cfg.Served = []nat.Source{{Subnet: netip.MustParsePrefix("10.128.0.0/22"), Address: netip.MustParseAddr("10.9.0.77")}}
	w.host.Do(func() {
		if err := w.filter.Set(cfg); err != nil {
			t.Fatal(err)
		}
	})
	var seen *linktest.Socket
	w.at["away"].Do(func() { seen = linktest.Open(t, "away") })
	defer seen.Close()
	send := func(from int) {
		w.at["web"].Do(func() {
			c, err := (&net.Dialer{LocalAddr: &net.UDPAddr{Port: from}}).Dial("udp4", w.addr["away"]+":9")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, _ = c.Write([]byte("x"))
		})
	}
	// leaves is the address with which a datagram leaves; "": it does not, and that of plain does, which has no egress.
	leaves := func(port int) (from string) {
		t.Helper()
		send(port)
		w.at["plain"].Do(func() {
			c, err := net.Dial("udp4", w.addr["away"]+":10")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, _ = c.Write([]byte("y"))
		})
		for {
			f := seen.Receive(5 * time.Second)
			switch {
			case f == nil:
				t.Fatal("not even the other network's datagram leaves")
			case len(f) < 38 || f[12] != 8 || f[13] != 0 || f[23] != 17:
			case f[37] == 9:
				from = fmt.Sprint(netip.AddrFrom4([4]byte(f[26:30])))
			case f[37] == 10:
				return from
			}
		}
	}
	const address = "10.9.0.77"
	if got := leaves(5000); got != address {
		t.Errorf("before another program's MASQUERADE it leaves as %q", got)
	}
	w.host.Do(func() {
		run(t, "nft", "add table ip other; add chain ip other out { type nat hook postrouting priority 0; }; add rule ip other out oifname != gv0 masquerade")
	})
	if got := leaves(5001); got != "" {
		t.Errorf("behind NAT that is nobody's custom it leaves as %s", got)
	}
	w.host.Do(func() {
		if dropped, err := w.filter.Refused(); err != nil || len(dropped) != 1 || dropped[0].Chain != Served {
			t.Errorf("of what did not leave it is told %+v, %v", dropped, err)
		}
		run(t, "nft", "delete table ip other")
	})
	if got := leaves(5001); got != address {
		t.Errorf("once that is gone it leaves as %q", got)
	}
	if !reaches(w.at["away"], "10.9.0.1:8080", 0) {
		t.Error("who comes in by a published port gets no answer")
	}
	// One container of the subnet leaves by another address, and is not taken for a stray.
	cfg.Served = append(cfg.Served, nat.Source{Subnet: netip.MustParsePrefix("10.128.0.2/32"), Address: netip.MustParseAddr("10.9.0.78")})
	cfg.Open = []netip.Prefix{cfg.Served[0].Subnet}
	w.host.Do(func() {
		if err := w.filter.Set(cfg); err != nil {
			t.Fatal(err)
		}
	})
	if got := leaves(5005); got != "10.9.0.78" {
		t.Errorf("by its own address it leaves as %q", got)
	}
	cfg.Served = cfg.Served[:1]
	w.host.Do(func() {
		if err := w.filter.Set(cfg); err != nil {
			t.Fatal(err)
		}
	})
	if !reaches(w.at["away"], w.addr["web"]+":80", 0) {
		t.Error("who comes in at a container's own address gets no answer")
	}
	w.host.Do(func() {
		run(t, "iptables", "-t", "nat", "-F")
	})
	if got := leaves(5002); got != address {
		t.Errorf("without iptables' NAT it leaves as %q", got)
	}
	w.host.Do(func() { run(t, "nft", "flush", "ruleset") })
	if with := w.filter.with.(*tables); with.owned {
		if got := leaves(5003); got != address {
			t.Errorf("after a flush of everything it leaves as %q", got)
		}
	}
}
