package overlay

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-net/grapevine/encap"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// scene is a host with three endpoints, another host and a third one behind IPv6.
func scene(mode pipeline.TunnelMode, port map[string]uint32) pipeline.Input {
	mac := func(b byte) net.HardwareAddr { return net.HardwareAddr{2, 0x42, 0, 0, 0, b} }
	addrs := func(s ...string) (out []netip.Addr) {
		for _, a := range s {
			out = append(out, addr(a))
		}
		return out
	}
	return pipeline.Input{
		Round: pipeline.Round, Tunnel: mode, TunnelPort: port["gvtun"], GatewayPort: port["gv0"], GatewayMAC: mac(2), VXLANPort: 4789,
		GossipPort: 7947, VTEP: addr("192.0.2.1"),
		Host:  addrs("240.1.0.1", "fd67:7261:7065::1"),
		VTEPs: []pipeline.VTEP{{Addr: addr("192.0.2.2"), Index: 2, Host: addrs("240.1.0.2", "fd67:7261:7065::2")}, {Addr: addr("2001:db8::3"), Index: 3}},
		Subnets: []pipeline.Subnet{
			{Prefix: prefix("10.128.0.0/22"), VNID: 5, Gateway: addr("10.128.0.1")},
			{Prefix: prefix("10.129.0.0/22"), VNID: 6},
			{Prefix: prefix("10.130.0.0/22"), VNID: 0, Gateway: addr("10.130.0.1")},
			{Prefix: prefix("fd00:1::/64"), VNID: 5, Gateway: addr("fd00:1::1")},
		},
		Routes: []pipeline.Route{
			{Prefix: prefix("10.128.0.0/22"), VNID: 5},
			{Prefix: prefix("10.128.2.0/24"), VNID: 5, VTEP: addr("192.0.2.2")},
			{Prefix: prefix("10.128.3.0/24"), VNID: 5, VTEP: addr("2001:db8::3")},
			{Prefix: prefix("10.129.2.0/24"), VNID: 6, VTEP: addr("192.0.2.2")},
			{Prefix: prefix("10.130.2.0/24"), VNID: 0, VTEP: addr("192.0.2.2")},
			{Prefix: prefix("fd00:1::2:0/112"), VNID: 5, VTEP: addr("192.0.2.2")},
		},
		Ports: []pipeline.Port{
			{OFPort: port["gva"], MAC: mac('a'), Addrs: addrs("10.128.0.7", "fd00:1::7"), LinkLocal: addrs("169.254.1.1", "fe80::a1"), VNID: 5, Multicast: true, Endpoint: "a"},
			{OFPort: port["gvc"], MAC: mac('c'), Addrs: addrs("10.129.0.7"), VNID: 6, Internal: true, Endpoint: "c"},
			{OFPort: port["gvg"], MAC: mac('g'), Addrs: addrs("10.130.0.7"), VNID: 0, Endpoint: "g"},
		},
		Neighbours: []pipeline.Neighbour{{Addr: addr("169.254.1.2"), VNID: 5, VTEP: addr("192.0.2.2")}, {Addr: addr("fe80::2"), VNID: 5, VTEP: addr("192.0.2.2"), Multicast: true}},
		Groups: []pipeline.Group{
			{VNID: 5, Addr: addr("239.1.2.3"), Ports: []uint32{port["gva"]}, VTEPs: addrs("192.0.2.2", "2001:db8::3")},
			{VNID: 5, Addr: addr("239.1.2.4"), VTEPs: addrs("192.0.2.2")},
			{VNID: 5, Addr: addr("10.128.3.255"), Ports: []uint32{port["gva"]}, VTEPs: addrs("192.0.2.2")},
			{VNID: 5, Addr: addr("ff02::fb"), Ports: []uint32{port["gva"]}, VTEPs: addrs("192.0.2.2")},
		},
	}
}

// sceneSwitch is a real switch with the scene's ports and flows. It fails the test
// if the switch does not give back the very flows that were put into it.
func sceneSwitch(t *testing.T, mode pipeline.TunnelMode) (*ovs.Bridge, map[string]uint32) {
	t.Helper()
	_, b := ovstest.Start(t)
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	var specs []ovs.PortSpec
	if mode == pipeline.Metadata {
		tunnel := KernelTunnel{Bridge: b, Kind: encap.VXLAN, UDPPort: 4789}
		for range 2 {
			if name, err := tunnel.Ensure(t.Context()); err != nil || name != TunnelPort {
				t.Fatal(name, err)
			}
		}
	} else {
		specs = append(specs, ovs.PortSpec{Name: "gvtun", Type: "internal", Role: roleTunnel})
	}
	for _, name := range []string{"gv0", "gva", "gvc", "gvg"} {
		specs = append(specs, ovs.PortSpec{Name: name, Type: "internal", Role: roleEndpoint})
	}
	port := map[string]uint32{}
	s, err := b.SetPorts(t.Context(), specs, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range s.Ports {
		port[name] = p.OFPort
	}
	want, err := pipeline.Compile(scene(mode, port))
	if err != nil {
		t.Fatal(err)
	}
	applied(t, b, nil, want)
	return b, port
}

// applied makes the switch's flows of what they are, and sees that it gives them back as they were written.
func applied(t *testing.T, b *ovs.Bridge, are, want []pipeline.Flow) {
	t.Helper()
	if err := b.ApplyBundle(t.Context(), pipeline.Diff(are, want).Lines()); err != nil {
		t.Fatal(err)
	}
	have, err := b.DumpFlows(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []pipeline.Flow
	for _, f := range have {
		got = append(got, pipelineFlow(f))
	}
	pipeline.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("the switch gives flows back in another spelling:\n%s", d)
	}
}

var tableLine = regexp.MustCompile(`(?m)^ *(\d+)\. .*cookie (0x[0-9a-f]+)`)

// verdict asks the switch what it would do with a packet: "output 3" as the last
// action, or "stage: object" of the flow that drops it.
// The packet is one argument of ofproto/trace, or a port and a frame.
func verdict(t *testing.T, b *ovs.Bridge, in pipeline.Input, packet ...string) (string, string) {
	t.Helper()
	out, err := b.Appctl(t.Context(), "ofproto/trace", append([]string{b.Name}, packet...)...)
	if err != nil {
		t.Fatal(err)
	}
	all := string(out)
	if i := strings.LastIndex(all, "\nrecirc("); i >= 0 { // behind connection tracking
		all = all[i:]
	}
	text, _, _ := strings.Cut(all, "\nFinal flow:")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	if last == "drop" {
		lines := tableLine.FindAllStringSubmatch(text, -1)
		if len(lines) == 0 {
			t.Fatalf("no flow in %s", text)
		}
		var table, cookie uint64
		if _, err := fmt.Sscan(lines[len(lines)-1][1]+" "+lines[len(lines)-1][2], &table, &cookie); err != nil {
			t.Fatal(err)
		}
		return pipeline.Stage(table).String() + ": " + pipeline.NewNames(in).Describe(cookie), text
	}
	if port, ok := strings.CutPrefix(last, "-> output port is "); ok {
		return "output:" + port, text
	}
	for i := len(lines) - 1; i >= 0; i-- { // what follows is about the tunnel itself
		action := strings.TrimSpace(lines[i])
		if strings.HasPrefix(action, "output:") || action == "IN_PORT" {
			return action, text
		}
	}
	return last, text
}

func TestTrace(t *testing.T) {
	for _, mode := range []pipeline.TunnelMode{pipeline.Metadata, pipeline.HeaderBits} {
		t.Run(map[pipeline.TunnelMode]string{pipeline.Metadata: "metadata", pipeline.HeaderBits: "header bits"}[mode], func(t *testing.T) {
			b, port := sceneSwitch(t, mode)
			in := scene(mode, port)
			from := func(name, mac, rest string) string {
				return fmt.Sprintf("in_port=%d,dl_src=02:42:00:00:00:%s,dl_dst=%s,%s", port[name], mac, pipeline.RouterMAC, rest)
			}
			a := func(rest string) string { return from("gva", "61", rest) }
			tunnel := func(vnid, vtep uint32, rest string) string {
				if mode == pipeline.HeaderBits {
					src, dst := headerBits(vnid, vtep)
					return fmt.Sprintf("in_port=%d,dl_src=%s,dl_dst=%s,%s", port["gvtun"], src, dst, rest)
				}
				source := map[uint32]string{2: "tun_src=192.0.2.2", 3: "tun_ipv6_src=2001:db8::3", 9: "tun_src=192.0.2.9"}[vtep]
				return fmt.Sprintf("in_port=%d,tun_id=%d,%s,%s", port["gvtun"], vnid, source, rest)
			}
			to := func(name string) string { return fmt.Sprintf("output:%d", port[name]) }
			ip := func(src, dst string) string { return fmt.Sprintf("icmp,nw_src=%s,nw_dst=%s,nw_ttl=64", src, dst) }
			ip6 := func(src, dst string) string { return fmt.Sprintf("icmp6,ipv6_src=%s,ipv6_dst=%s,nw_ttl=64", src, dst) }
			udp := func(src, dst string) string { return fmt.Sprintf("udp,nw_src=%s,nw_dst=%s,nw_ttl=1", src, dst) }
			udp6 := func(src, dst string) string { return fmt.Sprintf("udp6,ipv6_src=%s,ipv6_dst=%s,nw_ttl=1", src, dst) }
			ask := func(sha, spa, tpa string) string {
				return fmt.Sprintf("arp,arp_op=1,arp_sha=02:42:00:00:00:%s,arp_spa=%s,arp_tpa=%s", sha, spa, tpa)
			}
			nd := func(message int, src, target string) string {
				return fmt.Sprintf("icmp6,ipv6_src=%s,ipv6_dst=ff02::1:ff00:1,nw_ttl=255,icmpv6_type=%d,icmpv6_code=0,nd_target=%s", src, message, target)
			}
			advert, gatewayAdvert, address := "set_field:1610612736->nd_reserved", "set_field:3758096384->nd_reserved", "set_field:"+pipeline.RouterMAC.String()+"->nd_tll"
			if mode == pipeline.Metadata {
				advert, gatewayAdvert, address = "->NXM_NX_ND_TARGET[]", "->NXM_NX_ND_TARGET[]", "set_field:"+pipeline.RouterMAC.String()+"->nd_sll"
			}
			noND := "arp-responder: drop: " + pipeline.DropND.String()
			// What the packet must pass by is in the trace.
			remote, remote6 := "set_field:192.0.2.2->tun_dst", "set_field:2001:db8::3->tun_ipv6_dst"
			copy1, copy2 := remote, remote6
			if mode == pipeline.HeaderBits {
				remote, remote6 = "set_field:0x2->reg4", "set_field:0x3->reg4"
				copy1, copy2 = "set_field:02:01:00:00:00:02->eth_dst", "set_field:02:01:00:00:00:03->eth_dst"
			}
			for _, c := range []struct{ name, packet, want, passes string }{
				{"to another host", a(ip("10.128.0.7", "10.128.2.9")), to("gvtun"), remote},
				{"to a host behind IPv6", a(ip("10.128.0.7", "10.128.3.9")), to("gvtun"), remote6},
				{"IPv6 to another host", a(ip6("fd00:1::7", "fd00:1::2:9")), to("gvtun"), remote},
				{"to a global network elsewhere", a(ip("10.128.0.7", "10.130.2.9")), to("gvtun"), remote},
				{"to a global network here", a(ip("10.128.0.7", "10.130.0.7")), to("gvg"), "set_field:02:42:00:00:00:67->eth_dst"},
				{"from a global network", from("gvg", "67", ip("10.130.0.7", "10.128.0.7")), to("gva"), ""},
				{"from the host", from("gv0", "02", ip("10.128.0.1", "10.129.0.7")), to("gvc"), ""},
				{"from outside", from("gv0", "02", ip("198.51.100.1", "10.129.0.7")), to("gvc"), ""},
				{"to the gateway", a(ip("10.128.0.7", "10.128.0.1")), to("gv0"), "set_field:02:42:00:00:00:02->eth_dst"},
				{"to the outside", a(ip("10.128.0.7", "198.51.100.1")), to("gv0"), ""},
				{"from another host", tunnel(5, 2, ip("10.128.2.9", "10.128.0.7")), to("gva"), "set_field:02:42:00:00:00:61->eth_dst"},
				{"from a host behind IPv6", tunnel(5, 3, ip("10.128.3.9", "10.128.0.7")), to("gva"), ""},
				{"from a global network elsewhere", tunnel(0, 2, ip("10.130.2.9", "10.128.0.7")), to("gva"), ""},
				{"IPv6 from another host", tunnel(5, 2, ip6("fd00:1::2:9", "fd00:1::7")), to("gva"), ""},
				{"ARP", a(ask("61", "10.128.0.7", "10.128.3.3")), "IN_PORT", "set_field:" + pipeline.RouterMAC.String() + "->arp_sha"},
				{"ARP probe", a(ask("61", "0.0.0.0", "10.128.3.3")), "IN_PORT", ""},
				{"ARP of the host", from("gv0", "02", ask("02", "10.128.0.1", "10.129.0.7")), "IN_PORT", ""},
				{"from this host to another's container", from("gv0", "02", ip("240.1.0.1", "10.128.2.9")), to("gvtun"), remote},
				{"between link-local addresses", a(ip("169.254.1.1", "169.254.1.2")), to("gvtun"), remote},
				{"between link-local addresses, IPv6", a(ip6("fe80::a1", "fe80::2")), to("gvtun"), remote},
				{"from a link-local address elsewhere", tunnel(5, 2, ip("169.254.1.2", "169.254.1.1")), to("gva"), "set_field:02:42:00:00:00:61->eth_dst"},
				{"from a link-local address elsewhere, IPv6", tunnel(5, 2, ip6("fe80::2", "fe80::a1")), to("gva"), ""},
				{"ARP for a link-local address", a(ask("61", "169.254.1.1", "169.254.1.2")), "IN_PORT", ""},
				{"ND for a link-local address that a neighbour has", a(nd(135, "fe80::a1", "fe80::2")), "IN_PORT", address},
				{"to a link-local address outside", a(ip("10.128.0.7", "169.254.169.254")), to("gv0"), ""},
				{"its answer", tunnel(0, 2, ip("10.128.2.9", "240.1.0.1")), to("gv0"), "set_field:02:42:00:00:00:02->eth_dst"},
				{"from another host to a container here", tunnel(0, 2, ip("240.1.0.2", "10.128.0.7")), to("gv0"), "set_field:02:42:00:00:00:02->eth_dst"},
				{"the answer to that", from("gv0", "02", ip("10.128.0.7", "240.1.0.2")), to("gvtun"), remote},
				{"from another host by IPv6", tunnel(0, 2, ip6("fd67:7261:7065::2", "fd00:1::7")), to("gv0"), ""},
				{"ARP of the host about another one", from("gv0", "02", ask("02", "240.1.0.1", "240.1.0.2")), "IN_PORT", ""},
				{"to a group", a(udp("10.128.0.7", "239.1.2.3")), to("gvtun"), copy1},
				{"to a group, the second copy", a(udp("10.128.0.7", "239.1.2.3")), to("gvtun"), copy2},
				{"to a group, its own copy", a(udp("10.128.0.7", "239.1.2.3")), to("gvtun"), "skipping output to input port"},
				{"to a group from a link-local address", a(udp6("fe80::a1", "ff02::fb")), to("gvtun"), copy1},
				{"broadcast", a(udp("10.128.0.7", "10.128.3.255")), to("gvtun"), copy1},
				{"to a group from another host", tunnel(5, 2, udp("10.128.2.9", "239.1.2.3")), to("gva"), "set_field:01:00:5e:01:02:03->eth_dst"},
				{"broadcast from another host", tunnel(5, 2, udp("10.128.2.9", "10.128.3.255")), to("gva"), "set_field:ff:ff:ff:ff:ff:ff->eth_dst"},
				{"to a group from a link-local address elsewhere", tunnel(5, 2, udp6("fe80::2", "ff02::fb")), to("gva"), "set_field:33:33:00:00:00:fb->eth_dst"},

				{"to a group by a neighbour's address", tunnel(5, 3, udp6("fe80::2", "ff02::fb")), "spoof-guard: drop: " + pipeline.DropTunnelSource.String(), ""},
				{"to a group by another's address", a(udp("10.128.0.8", "239.1.2.3")), "spoof-guard: endpoint a", ""},
				{"to a group by another's link-local address", a(udp6("fe80::2", "ff02::fb")), "spoof-guard: drop: " + pipeline.DropLinkLocal.String(), ""},
				{"to a group without members here from another host", tunnel(5, 2, udp("10.128.2.9", "239.1.2.4")), "forwarding: drop: " + pipeline.DropTransit.String(), ""},
				{"to a group of another network", from("gvc", "63", udp("10.129.0.7", "239.1.2.3")), "forwarding: drop: " + pipeline.DropMulticast.String(), ""},
				{"to a group from a global network", from("gvg", "67", udp("10.130.0.7", "239.1.2.3")), "forwarding: drop: " + pipeline.DropMulticast.String(), ""},
				{"to a group from the host", from("gv0", "02", udp("198.51.100.2", "239.1.2.3")), "forwarding: drop: " + pipeline.DropMulticast.String(), ""},
				{"to a group of another network from another host", tunnel(6, 2, udp("10.129.2.9", "239.1.2.3")), "forwarding: drop: " + pipeline.DropTransit.String(), ""},
				{"ICMP to a group", a(ip("10.128.0.7", "239.1.2.3")), "forwarding: drop: " + pipeline.DropMulticast.String(), ""},
				{"IGMP", a("ip,nw_proto=2,nw_src=10.128.0.7,nw_dst=239.1.2.3,nw_ttl=1"), "forwarding: drop: " + pipeline.DropMulticast.String(), ""},
				{"MLD", a("icmp6,ipv6_src=fe80::a1,ipv6_dst=ff02::fb,nw_ttl=1,icmpv6_type=131,icmpv6_code=0"), "forwarding: drop: " + pipeline.DropMulticast.String(), ""},
				{"host by another's address", tunnel(0, 3, ip("240.1.0.2", "10.128.0.7")), "spoof-guard: drop: " + pipeline.DropTunnelSource.String(), ""},
				{"host with a VNID", tunnel(5, 2, ip("240.1.0.2", "10.128.0.7")), "spoof-guard: drop: " + pipeline.DropTunnelSource.String(), ""},
				{"host to the outside", tunnel(0, 2, ip("240.1.0.2", "198.51.100.1")), "forwarding: drop: " + pipeline.DropTransit.String(), ""},
				{"container to a host's own address", a(ip("10.128.0.7", "240.1.0.2")), "forwarding: drop: " + pipeline.DropHostAddress.String(), ""},
				{"container to this host's own address", a(ip("10.128.0.7", "240.1.0.1")), "forwarding: drop: " + pipeline.DropHostAddress.String(), ""},
				{"container of a global network likewise", from("gvg", "67", ip("10.130.0.7", "240.1.0.2")), "forwarding: drop: " + pipeline.DropHostAddress.String(), ""},
				{"another host's address from outside", from("gv0", "02", ip("240.1.0.2", "10.128.0.7")), "spoof-guard: drop: " + pipeline.DropHostAddress.String(), ""},
				{"other network's container to a host", tunnel(6, 2, ip("10.129.2.9", "240.1.0.1")), "forwarding: drop: " + pipeline.DropTransit.String(), ""},

				{"ND", a(nd(135, "fd00:1::7", "fd00:1::2:9")), "IN_PORT", advert},
				{"ND for the gateway, a router", a(nd(135, "fd00:1::7", "fd00:1::1")), "IN_PORT", gatewayAdvert},
				{"ND from the link-local address", a(nd(135, "fe80::42:ff:fe00:61", "fd00:1::1")), "IN_PORT", address},
				{"ND of the host", from("gv0", "02", nd(135, "fd00:1::1", "fd00:1::7")), "IN_PORT", ""},
				{"ND of the host for others", from("gv0", "02", nd(135, "fe80::867:ff:fe00:2", "fd00:1::7")), "IN_PORT", ""},
				{"IPv6 to the gateway", a(ip6("fd00:1::7", "fd00:1::1")), to("gv0"), "set_field:02:42:00:00:00:02->eth_dst"},
				{"IPv6 to the outside", a(ip6("fd00:1::7", "2001:db8::1")), to("gv0"), ""},
				{"IPv6 from outside", from("gv0", "02", ip6("2001:db8::1", "fd00:1::7")), to("gva"), "set_field:02:42:00:00:00:61->eth_dst"},

				{"ND about itself", a(nd(135, "fd00:1::7", "fd00:1::7")), "arp-responder: endpoint a", ""},
				{"ND about the gateway by itself", from("gv0", "02", nd(135, "fd00:1::1", "fd00:1::1")), "arp-responder: subnet fd00:1::/64", ""},
				{"ND for another network", from("gvc", "63", nd(135, "fe80::42:ff:fe00:63", "fd00:1::7")), "spoof-guard: drop: " + pipeline.DropLinkLocal.String(), ""},
				{"ND for no prefix", a(nd(135, "fd00:1::7", "fd00:2::7")), noND, ""},
				{"ND for a link-local address", a(nd(135, "fd00:1::7", "fe80::1")), noND, ""},
				{"ND for a spoofed address", a(nd(135, "fd00:1::8", "fd00:1::1")), "spoof-guard: endpoint a", ""},
				{"ND for a spoofed link-local address", a(nd(135, "fe80::42:ff:fe00:62", "fd00:1::1")), "spoof-guard: drop: " + pipeline.DropLinkLocal.String(), ""},
				{"ND for a spoofed MAC", from("gva", "62", nd(135, "fd00:1::7", "fd00:1::1")), "spoof-guard: endpoint a", ""},
				{"ND from the tunnel", tunnel(5, 2, nd(135, "fd00:1::2:9", "fd00:1::7")), noND, ""},
				{"advertisement from the tunnel", tunnel(5, 2, nd(136, "fd00:1::2:9", "fd00:1::7")), noND, ""},
				{"address probe", a(nd(135, "::", "fd00:1::7")), "spoof-guard: drop: " + pipeline.DropLinkLocal.String(), ""},
				{"router solicitation", a("icmp6,ipv6_src=fe80::42:ff:fe00:61,ipv6_dst=ff02::2,nw_ttl=255,icmpv6_type=133,icmpv6_code=0"), "spoof-guard: drop: " + pipeline.DropLinkLocal.String(), ""},
				{"router advertisement", a("icmp6,ipv6_src=fe80::42:ff:fe00:61,ipv6_dst=ff02::1,nw_ttl=255,icmpv6_type=134,icmpv6_code=0"), "spoof-guard: drop: " + pipeline.DropLinkLocal.String(), ""},
				{"router advertisement to one", a("icmp6,ipv6_src=fd00:1::7,ipv6_dst=fd00:1::2:9,nw_ttl=255,icmpv6_type=134,icmpv6_code=0"), noND, ""},
				{"advertisement to one", a("icmp6,ipv6_src=fd00:1::7,ipv6_dst=fd00:1::2:9,nw_ttl=255,icmpv6_type=136,icmpv6_code=0,nd_target=fd00:1::1"), noND, ""},
				{"redirect", a("icmp6,ipv6_src=fd00:1::7,ipv6_dst=fd00:1::2:9,nw_ttl=255,icmpv6_type=137,icmpv6_code=0"), noND, ""},
				{"to a link-local address", a(ip6("fe80::42:ff:fe00:61", "fe80::42:ff:fe00:62")), "spoof-guard: drop: " + pipeline.DropLinkLocal.String(), ""},
				{"to nobody's link-local address", a(ip("169.254.1.1", "169.254.1.9")), "forwarding: drop: " + pipeline.DropLinkLocal.String(), ""},
				{"to nobody's link-local address, IPv6", a(ip6("fe80::a1", "fe80::9")), "forwarding: drop: " + pipeline.DropLinkLocal.String(), ""},
				{"from a link-local address to another one", a(ip("169.254.1.1", "10.128.2.9")), "spoof-guard: endpoint a", ""},
				{"a spoofed link-local address", a(ip("169.254.1.2", "169.254.1.1")), "spoof-guard: endpoint a", ""},
				{"a link-local address of another network", from("gvc", "63", ask("63", "10.129.0.7", "169.254.1.1")), "arp-responder: drop: " + pipeline.DropARP.String(), ""},
				{"a link-local address of another network elsewhere", tunnel(6, 2, ip("169.254.1.2", "169.254.1.1")), "spoof-guard: drop: " + pipeline.DropTunnelSource.String(), ""},
				{"a link-local address of another VTEP's", tunnel(5, 3, ip("169.254.1.2", "169.254.1.1")), "spoof-guard: drop: " + pipeline.DropTunnelSource.String(), ""},
				{"ARP for its own link-local address", a(ask("61", "0.0.0.0", "169.254.1.1")), "arp-responder: endpoint a", ""},
				{"a spoofed IPv6 address", a(ip6("fd00:1::8", "fd00:1::2:9")), "spoof-guard: endpoint a", ""},
				{"IPv6 multicast", a(ip6("fd00:1::7", "ff02::1")), "forwarding: drop: " + pipeline.DropMulticast.String(), ""},
				{"IPv6 of another VTEP's range", tunnel(5, 3, ip6("fd00:1::2:9", "fd00:1::7")), "spoof-guard: range fd00:1::2:0/112", ""},
				{"IPv6 of another VNID", tunnel(6, 2, ip6("fd00:1::2:9", "fd00:1::7")), "spoof-guard: range fd00:1::2:0/112", ""},
				{"ARP about itself", a(ask("61", "0.0.0.0", "10.128.0.7")), "arp-responder: endpoint a", ""},
				{"ARP about the gateway by itself", from("gv0", "02", ask("02", "10.128.0.1", "10.128.0.1")), "arp-responder: subnet 10.128.0.0/22", ""},
				{"ARP for another network", a(ask("61", "10.128.0.7", "10.129.0.7")), "arp-responder: " + "drop: " + pipeline.DropARP.String(), ""},
				{"ARP reply", a("arp,arp_op=2,arp_sha=02:42:00:00:00:61,arp_spa=10.128.0.7,arp_tpa=10.128.0.1"), "arp-responder: drop: " + pipeline.DropARP.String(), ""},
				{"ARP for a spoofed address", a(ask("61", "10.128.0.9", "10.128.0.1")), "spoof-guard: endpoint a", ""},
				{"ARP for a spoofed MAC", a(ask("62", "10.128.0.7", "10.128.0.1")), "spoof-guard: endpoint a", ""},
				{"ARP from the tunnel", tunnel(5, 2, ask("61", "10.128.2.9", "10.128.0.7")), "spoof-guard: drop: " + pipeline.DropTunnelSource.String(), ""},
				{"VLAN", a("dl_vlan=5," + ip("10.128.0.7", "10.128.2.9")), "classify: drop: " + pipeline.DropVLAN.String(), ""},
				{"unknown port", "in_port=99," + ip("10.128.0.7", "10.128.2.9"), "spoof-guard: drop: " + pipeline.DropUnknownPort.String(), ""},
				{"other network", a(ip("10.128.0.7", "10.129.0.7")), "vnid-check: drop: " + pipeline.DropOtherNetwork.String(), ""},
				{"other network elsewhere", a(ip("10.128.0.7", "10.129.2.7")), "vnid-check: drop: " + pipeline.DropOtherNetwork.String(), ""},
				{"nobody's address", a(ip("10.128.0.7", "10.128.0.9")), "forwarding: range 10.128.0.0/22", ""},
				{"multicast", a(ip("10.128.0.7", "224.0.0.1")), "forwarding: drop: " + pipeline.DropMulticast.String(), ""},
				{"loopback", a(ip("10.128.0.7", "127.0.0.1")), "forwarding: drop: " + pipeline.DropLoopback.String(), ""},
				{"forged tunnel packet", a("udp,nw_src=10.128.0.7,nw_dst=192.0.2.2,nw_ttl=64,udp_src=1,udp_dst=4789"), "forwarding: drop: " + pipeline.DropForgedTunnel.String(), ""},
				{"internal to the outside", from("gvc", "63", ip("10.129.0.7", "198.51.100.1")), "forwarding: drop: " + pipeline.DropNoRoute.String(), ""},
				{"gateway to the outside", from("gv0", "02", ip("198.51.100.2", "198.51.100.1")), "forwarding: drop: " + pipeline.DropNoRoute.String(), ""},
				{"forged outside", from("gv0", "02", ip("10.128.0.8", "10.128.0.7")), "spoof-guard: subnet 10.128.0.0/22", ""},
				{"link-local", a(ip6("fe80::1", "ff02::2")), "spoof-guard: drop: " + pipeline.DropLinkLocal.String(), ""},
				{"unknown VTEP", tunnel(5, 9, ip("10.128.2.9", "10.128.0.7")), "tunnel-source: drop: " + pipeline.DropUnknownVTEP.String(), ""},
				{"the kernel's own, at the tunnel's port", "icmp6,in_port=gvtun,dl_src=02:11:00:00:00:01,dl_dst=33:33:00:00:00:16,ipv6_src=::,ipv6_dst=ff02::16,icmpv6_type=143", "tunnel-source: drop: " + map[pipeline.TunnelMode]pipeline.Reason{pipeline.HeaderBits: pipeline.DropUnwrapped, pipeline.Metadata: pipeline.DropUnknownVTEP}[mode].String(), ""},
				{"another VTEP's range", tunnel(5, 2, ip("10.128.3.9", "10.128.0.7")), "spoof-guard: range 10.128.3.0/24", ""},
				{"another VNID", tunnel(6, 2, ip("10.128.2.9", "10.128.0.7")), "spoof-guard: range 10.128.2.0/24", ""},
				{"privileged by claim", tunnel(0, 2, ip("10.128.2.9", "10.128.0.7")), "spoof-guard: range 10.128.2.0/24", ""},
				{"other network from there", tunnel(6, 2, ip("10.129.2.9", "10.128.0.7")), "vnid-check: drop: " + pipeline.DropOtherNetwork.String(), ""},
				{"tunnel to tunnel", tunnel(5, 2, ip("10.128.2.9", "10.128.3.9")), "forwarding: drop: " + pipeline.DropTransit.String(), ""},
				{"tunnel to gateway", tunnel(5, 2, ip("10.128.2.9", "10.128.0.1")), "forwarding: drop: " + pipeline.DropTransit.String(), ""},
				{"tunnel to the outside", tunnel(5, 2, ip("10.128.2.9", "198.51.100.1")), "forwarding: drop: " + pipeline.DropTransit.String(), ""},
			} {
				got, text := verdict(t, b, in, c.packet)
				if got != c.want || !strings.Contains(text, c.passes) {
					t.Errorf("%s: got %q, want %q by way of %q\n%s", c.name, got, c.want, c.passes, text)
				}
			}
		})
	}
}

// TestAttachMany: endpoints attached at once all get a port and flows; how long it took
// is reported.
func TestAttachMany(t *testing.T) {
	h := newHost(t)
	const n = 20
	errs := make(chan error, n)
	for i := range n {
		e := endpoint(me, byte('a'+i), "blue", fmt.Sprintf("10.128.0.%d", 10+i))
		name := link.PortName(e.ID)
		ovstest.Run(t, "ip", "link", "add", name, "type", "veth", "peer", "name", fmt.Sprint("peer", i))
		ovstest.Run(t, "ip", "link", "set", name, "up")
		t.Cleanup(func() { ovstest.Run(t, "ip", "link", "del", name) })
		h.put(e)
		go func() { errs <- h.Attach(t.Context(), e.ID, name) }()
	}
	began := time.Now()
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d endpoints attached at once in %v", n, time.Since(began))
	s, err := h.bridge.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint32]bool{}
	for name, p := range s.Ports {
		if p.OFPort == 0 && name != h.bridge.Name || seen[p.OFPort] {
			t.Errorf("port %s has OpenFlow port %d", name, p.OFPort)
		}
		seen[p.OFPort] = true
	}
	if len(s.Ports) < n+2 {
		t.Errorf("%d ports, want %d endpoints, a tunnel and a gateway", len(s.Ports), n)
	}
}
