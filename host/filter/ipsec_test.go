package filter

import (
	"log/slog"
	"net"
	"net/netip"
	"testing"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// Where VXLAN is to go by IPsec none leaves for a host and none is taken in the clear, whole or in fragments; all else
// passes, and so does VXLAN of others to others. (What ESP protects passes: tests/qemu/ipsec.txtar; this kernel has none.)
func TestByIPsec(t *testing.T) {
	host, wire := linktest.New(t), linktest.New(t)
	linktest.Wire(t, "eth0", host, wire, []string{"10.9.0.1/24", "fd00:9::1/64"}, []string{"10.9.0.2/24", "10.9.0.9/24", "fd00:9::2/64"})
	serve(t, host, "[fd00:9::1]", "10.9.0.1")
	serve(t, wire, "[fd00:9::2]", "10.9.0.2", "10.9.0.9")
	cfg := config
	cfg.VTEPs, cfg.Behind = []netip.Addr{netip.MustParseAddr("10.9.0.2"), netip.MustParseAddr("fd00:9::2")}, nil
	var f *Filter
	host.Do(func() {
		var err error
		if f, err = Open(slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	})
	defer f.Close()
	// Somebody's NAT, by which the kernel looks for another way after the first look.
	host.Do(func() { run(t, "iptables", "-t", "nat", "-A", "POSTROUTING", "-o", "eth0", "-j", "MASQUERADE") })
	for _, required := range []bool{false, true, false} {
		cfg.IPsec = required
		host.Do(func() {
			if err := f.Set(cfg); err != nil {
				t.Fatal(err)
			}
		})
		if f.ByIPsec() != required {
			t.Errorf("by IPsec alone: %v, want %v", f.ByIPsec(), required)
		}
		for _, c := range []struct {
			what     string
			from     *linktest.NS
			to, port string
			size     int
			passes   bool
		}{
			{"VXLAN to a host", host, "10.9.0.2", "4789", 20, !required},
			{"VXLAN to a host, IPv6", host, "fd00:9::2", "4789", 20, !required},
			{"VXLAN to a host, in fragments", host, "10.9.0.2", "4789", 4000, !required},
			{"VXLAN from a host", wire, "10.9.0.1", "4789", 20, !required},
			{"VXLAN from a host, IPv6", wire, "fd00:9::1", "4789", 20, !required},
			{"VXLAN from a host, in fragments", wire, "10.9.0.1", "4789", 4000, !required},
			{"VXLAN from a host, in fragments of IPv6", wire, "fd00:9::1", "4789", 4000, !required},
			{"VXLAN to a machine that is no host yet", host, "10.9.0.9", "4789", 20, !required},
			{"another port to a host", host, "10.9.0.2", "4790", 20, true},
			{"another port from a host", wire, "10.9.0.1", "4790", 20, true},
			{"TCP", wire, "fd00:9::1", "7947", 0, true},
		} {
			to := net.JoinHostPort(c.to, c.port)
			if c.passes {
				eventually(t, c.what, func() bool { return reaches(c.from, to, c.size) })
			} else if reaches(c.from, to, c.size) {
				t.Errorf("%s passes in the clear", c.what)
			}
		}
		refused, err := f.Refused()
		if err != nil || required && len(refused) < 2 {
			t.Errorf("refused is %v, %v", refused, err)
		}
	}
}
