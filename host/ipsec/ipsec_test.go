package ipsec

import (
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

func cidr(s string) *net.IPNet {
	_, n, err := net.ParseCIDR(s)
	if err != nil {
		panic(err)
	}
	return n
}

// Only where each packet of VXLAN, each way, is for a policy that asks for ESP, whatever comes first, is it protected.
func TestUnprotected(t *testing.T) {
	here, there, all := cidr("10.9.0.1/32"), cidr("10.9.0.2/32"), cidr("0.0.0.0/0")
	esp := []netlink.XfrmPolicyTmpl{{Proto: netlink.XFRM_PROTO_ESP}}
	way := Way{Here: netip.MustParseAddr("10.9.0.1"), There: netip.MustParseAddr("10.9.0.2"), Port: 4789, Device: 2}
	const in, out = netlink.XFRM_DIR_IN, netlink.XFRM_DIR_OUT
	both := func(more ...netlink.XfrmPolicy) []netlink.XfrmPolicy {
		return append([]netlink.XfrmPolicy{{Dir: in, Src: there, Dst: here, Priority: 10, Tmpls: esp}, {Dir: out, Src: here, Dst: there, Priority: 10, Tmpls: esp}}, more...)
	}
	for _, tt := range []struct {
		name     string
		policies []netlink.XfrmPolicy
		want     string
	}{
		{"none", nil, "no IPsec policy dir out is for UDP port 4789 from 10.9.0.1 to 10.9.0.2"},
		{"both ways", both(), ""},
		{"out alone", both()[1:], "no IPsec policy dir in is for"},
		{"in alone", both()[:1], "no IPsec policy dir out is for"},
		{"the port alone", []netlink.XfrmPolicy{{Dir: in, Src: all, Dst: all, Proto: 17, DstPort: 4789, Tmpls: esp}, {Dir: out, Src: all, Dst: all, Proto: 17, DstPort: 4789, Tmpls: esp}}, ""},
		{"another port", []netlink.XfrmPolicy{{Dir: in, Src: there, Dst: here, Tmpls: esp}, {Dir: out, Src: here, Dst: there, Proto: 17, DstPort: 500, Tmpls: esp}}, "no IPsec policy dir out"},
		{"one source port", []netlink.XfrmPolicy{{Dir: in, Src: there, Dst: here, Tmpls: esp}, {Dir: out, Src: here, Dst: there, Proto: 17, SrcPort: 4789, Tmpls: esp}}, "no IPsec policy dir out"},
		{"TCP", []netlink.XfrmPolicy{{Dir: in, Src: there, Dst: here, Tmpls: esp}, {Dir: out, Src: here, Dst: there, Proto: 6, Tmpls: esp}}, "no IPsec policy dir out"},
		{"let pass before", both(netlink.XfrmPolicy{Dir: out, Src: all, Dst: all, Priority: 5}), "dir out from 0.0.0.0/0 to 0.0.0.0/0 (priority 5) lets packets pass as they are"},
		{"some let pass before", both(netlink.XfrmPolicy{Dir: in, Src: all, Dst: all, Proto: 17, SrcPort: 4000, Priority: 5}), "dir in from"},
		{"let pass at once", both(netlink.XfrmPolicy{Dir: out, Src: all, Dst: all, Priority: 10}), "lets packets pass"},
		{"let pass after", both(netlink.XfrmPolicy{Dir: out, Src: all, Dst: all, Priority: 11}), ""},
		{"let pass for others", both(netlink.XfrmPolicy{Dir: out, Src: all, Dst: cidr("10.9.0.3/32"), Priority: 5}), ""},
		{"let pass with a mark", both(netlink.XfrmPolicy{Dir: out, Src: all, Dst: all, Priority: 5, Mark: &netlink.XfrmMark{Value: 1, Mask: ^uint32(0)}}), ""},
		{"let pass by another NIC", both(netlink.XfrmPolicy{Dir: out, Src: all, Dst: all, Priority: 5, Ifindex: 3}), ""},
		{"let pass by this NIC", both(netlink.XfrmPolicy{Dir: out, Src: all, Dst: all, Priority: 5, Ifindex: 2}), "lets packets pass"},
		{"blocked", both(netlink.XfrmPolicy{Dir: out, Src: all, Dst: all, Priority: 5, Action: netlink.XFRM_POLICY_BLOCK}), "lets nothing pass"},
		{"the rest blocked", both(netlink.XfrmPolicy{Dir: out, Src: all, Dst: all, Priority: 1<<32 - 1, Action: netlink.XFRM_POLICY_BLOCK}), ""},
		{"as it can be", []netlink.XfrmPolicy{{Dir: in, Src: there, Dst: here, Tmpls: esp}, {Dir: out, Src: here, Dst: there, Tmpls: []netlink.XfrmPolicyTmpl{{Proto: netlink.XFRM_PROTO_ESP, Optional: 1}}}}, "only where there are keys"},
		{"AH", []netlink.XfrmPolicy{{Dir: in, Src: there, Dst: here, Tmpls: esp}, {Dir: out, Src: here, Dst: there, Tmpls: []netlink.XfrmPolicyTmpl{{Proto: netlink.XFRM_PROTO_AH}}}}, "asks for no ESP"},
		{"an XFRM interface's", both()[:1], "dir out"},
		{"all", []netlink.XfrmPolicy{{Dir: in, Tmpls: esp}, {Dir: out, Tmpls: esp}}, ""},
	} {
		err := Unprotected(tt.policies, way)
		switch {
		case tt.want == "" && err != nil, tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// What the kernel has is read as it was set.
func TestPolicies(t *testing.T) {
	linktest.New(t).Do(func() {
		dst := netip.MustParseAddr("10.9.0.2")
		way := Way{Here: netip.MustParseAddr("10.9.0.1"), There: dst, Port: 4789}
		set := func(dir netlink.Dir, from, to string) {
			p := &netlink.XfrmPolicy{Dir: dir, Src: cidr(from), Dst: cidr(to), Proto: unix.IPPROTO_UDP, DstPort: 4789, Priority: 7,
				Tmpls: []netlink.XfrmPolicyTmpl{{Proto: netlink.XFRM_PROTO_ESP, Mode: netlink.XFRM_MODE_TRANSPORT}}}
			if err := netlink.XfrmPolicyAdd(p); err != nil {
				t.Fatal(err)
			}
		}
		for i, step := range []func(){func() {}, func() { set(netlink.XFRM_DIR_OUT, "10.9.0.1/32", "10.9.0.2/32") }, func() { set(netlink.XFRM_DIR_IN, "10.9.0.2/32", "10.9.0.1/32") }} {
			step()
			list, err := Policies(false)
			if err != nil || len(list) != i {
				t.Fatalf("after %d steps the policies are %v, %v", i, list, err)
			}
			if err := Unprotected(list, way); (err == nil) != (i == 2) {
				t.Errorf("after %d steps: %v", i, err)
			}
		}
		// Prefixes of IPv6 that end in zeros are no IPv4.
		six := Way{Here: netip.MustParseAddr("fd00:9::1"), There: netip.MustParseAddr("fd00:9::2"), Port: 4789}
		if list, err := Policies(true); err != nil || len(list) != 0 {
			t.Errorf("of IPv6 there are %v, %v", list, err)
		}
		for _, line := range []string{"out src fd00:9::/64 dst fd00:9::/64", "in src fd00::/16 dst fd00:9::1/128"} {
			line = "xfrm policy add dir " + line + " proto udp dport 4789 priority 7 tmpl proto esp mode transport"
			if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				t.Fatalf("ip %s: %v: %s", line, err, out)
			}
		}
		list, err := Policies(true)
		if err != nil || len(list) != 2 {
			t.Fatalf("of IPv6 there are %v, %v", list, err)
		}
		if err := Unprotected(list, six); err != nil {
			t.Errorf("by prefixes: %v", err)
		}
		for _, p := range list {
			if p.Proto != unix.IPPROTO_UDP || p.DstPort != 4789 || p.Priority != 7 || len(p.Tmpls) != 1 || p.Tmpls[0].Mode != netlink.XFRM_MODE_TRANSPORT {
				t.Errorf("read is %+v", p)
			}
		}
		if err := Disabled("lo"); err == nil { // the kernel sets both for it
			t.Error("of lo nothing is disabled")
		}
	})
}
