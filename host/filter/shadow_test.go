package filter

import (
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/host/nat"
)

// TestShadow: no container leaves by an exposed port, by UDP or TCP, whatever NAT another program has, and that is told.
// Other ports, other networks, the host itself, and who comes in from outside at the exposed port are not hit.
func TestShadow(t *testing.T) {
	const exposed, plain = 8080, 8090
	w := newWorld(t, openFilter)
	if _, is := w.filter.with.(*tables); !is {
		t.Fatal("this kernel has no nf_tables")
	}
	cfg := config
	cfg.Inside = []netip.Prefix{netip.MustParsePrefix("10.128.0.0/16"), netip.MustParsePrefix("fd00:128::/32")}
	set := func(ports ...uint16) {
		t.Helper()
		cfg.Exposed = ports
		w.host.Do(func() {
			if err := w.filter.Set(cfg); err != nil {
				t.Fatal(err)
			}
		})
	}
	w.host.Do(func() { // as who has no thought of iptables
		run(t, "iptables", "-t", "nat", "-F", "POSTROUTING")
		run(t, "ip6tables", "-t", "nat", "-F", "POSTROUTING")
		run(t, "nft", "add table inet adm; add chain inet adm post { type nat hook postrouting priority srcnat; }; add rule inet adm post oifname eth0 masquerade")
	})
	// reached reports whether an answer comes to what is sent from a port of a machine.
	reached := func(ns *linktest.NS, network string, from int, family string) (is bool) {
		t.Helper()
		d := net.Dialer{Timeout: 400 * time.Millisecond, LocalAddr: &net.UDPAddr{Port: from}}
		to := net.JoinHostPort(w.addr["away"+family], "4790")
		if network == "tcp" {
			d.LocalAddr, to = &net.TCPAddr{Port: from}, net.JoinHostPort(w.addr["away"+family], "7948")
		}
		ns.Do(func() {
			c, err := d.Dial(network, to)
			if err != nil {
				return
			}
			defer c.Close()
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
				is = true
				return
			}
			_ = c.SetDeadline(time.Now().Add(d.Timeout))
			_, _ = c.Write([]byte("x"))
			_, err = c.Read(make([]byte, 1))
			is = err == nil
		})
		return is
	}
	for _, family := range []string{"", "/6"} {
		in := "10.9.0.1:" + strconv.Itoa(exposed)
		if family != "" {
			in = "[fd00:9::1]:" + strconv.Itoa(exposed)
		}
		for _, network := range []string{"udp", "tcp"} {
			set()
			if !reached(w.at["web"], network, exposed, family) {
				t.Errorf("%s%s: while nothing is exposed it does not leave: nothing is shown", network, family)
			}
			set(53, exposed)
			if reached(w.at["web"], network, exposed, family) {
				t.Errorf("%s%s: it leaves by the exposed port", network, family)
			}
			if !reached(w.at["web"], network, plain, family) {
				t.Errorf("%s%s: by another port it does not leave", network, family)
			}
			if !reached(w.at["plain"], network, exposed, family) {
				t.Errorf("%s%s: a container of another network does not leave", network, family)
			}
			if !reached(w.host, network, exposed, family) {
				t.Errorf("%s%s: the host does not leave", network, family)
			}
		}
		if !reaches(w.at["away"], in, 0) {
			t.Errorf("%s: who comes in gets no answer", in)
		}
	}
	w.host.Do(func() {
		dropped, err := w.filter.Refused()
		if err != nil || len(dropped) != 1 || dropped[0].Chain != Shadow || dropped[0].Packets < 4 {
			t.Errorf("of what did not leave it is told %+v, %v", dropped, err)
		}
		run(t, "nft", "flush table inet "+lasting)
	})
	if with := w.filter.with.(*tables); with.owned && reached(w.at["web"], "udp", exposed, "") {
		t.Error("after a flush it leaves by the exposed port")
	}
	// What has an egress leaves by the port that iptables' rules have for it.
	cfg.Served = []nat.Source{{Subnet: netip.MustParsePrefix("10.128.0.0/22"), Address: netip.MustParseAddr("10.9.0.77")}}
	set(53, exposed)
	w.host.Do(func() {
		run(t, "nft", "delete table inet adm")
		run(t, "iptables", "-t", "nat", "-A", "POSTROUTING", "-s", "10.128.0.0/22", "-o", "eth0", "-p", "udp", "--sport", strconv.Itoa(exposed), "-j", "SNAT", "--to", "10.9.0.77:9000-9100")
	})
	w.addr["away"] = w.addr["vtep"] // of the other one conntrack knows yet
	if !reached(w.at["web"], "udp", exposed, "") {
		t.Error("with an egress it has no other port to leave by")
	}
}
