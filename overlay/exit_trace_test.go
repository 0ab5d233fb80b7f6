package overlay

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// TestExit: Open vSwitch's own verdicts on what leaves by another host, in both datapaths' form.
func TestExit(t *testing.T) {
	for _, mode := range []pipeline.TunnelMode{pipeline.Metadata, pipeline.HeaderBits} {
		t.Run(map[pipeline.TunnelMode]string{pipeline.Metadata: "metadata", pipeline.HeaderBits: "header bits"}[mode], func(t *testing.T) {
			b, port := sceneSwitch(t, mode)
			flows, err := pipeline.Compile(scene(mode, port))
			if err != nil {
				t.Fatal(err)
			}
			leave := func(exits ...pipeline.Exit) pipeline.Input {
				t.Helper()
				in := scene(mode, port)
				for _, e := range exits {
					e.VNID, e.V4 = 5, !e.V6
					e.Hosts, e.Routers = in.VTEPs[0].Host, []netip.Prefix{prefix("10.128.0.1/22"), prefix("fd00:1::1/64")}
					in.Exits = append(in.Exits, e)
				}
				in.Ports[0].Addrs = append(in.Ports[0].Addrs, addr("10.128.0.8"))
				in.Own = []netip.Addr{in.VTEP, addr("172.17.0.1"), addr("2001:db8:17::1")}
				next, err := pipeline.Compile(in)
				if err != nil {
					t.Fatal(err)
				}
				if err := b.ApplyBundle(t.Context(), pipeline.Diff(flows, next).Lines()); err != nil {
					t.Fatal(err)
				}
				var got []pipeline.Flow
				have, err := b.DumpFlows(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range have {
					got = append(got, pipelineFlow(f))
				}
				pipeline.Sort(got)
				if d := cmp.Diff(next, got); d != "" {
					t.Fatalf("the switch gives flows back in another spelling:\n%s", d)
				}
				flows = next
				return in
			}
			from := func(name, mac, src, dst string) string {
				return fmt.Sprintf("in_port=%d,dl_src=02:42:00:00:00:%s,dl_dst=%s,icmp,nw_src=%s,nw_dst=%s,nw_ttl=64", port[name], mac, pipeline.RouterMAC, src, dst)
			}
			from6 := fmt.Sprintf("in_port=%d,dl_src=02:42:00:00:00:61,dl_dst=%s,icmp6,ipv6_src=fd00:1::7,ipv6_dst=2001:db8::1,nw_ttl=64", port["gva"], pipeline.RouterMAC)
			tunnel := func(vnid, vtep uint32, rest string) string {
				if mode == pipeline.HeaderBits {
					src, dst := headerBits(vnid, vtep)
					return fmt.Sprintf("in_port=%d,dl_src=%s,dl_dst=%s,%s", port["gvtun"], src, dst, rest)
				}
				source := map[uint32]string{2: "tun_src=192.0.2.2", 3: "tun_ipv6_src=2001:db8::3"}[vtep]
				return fmt.Sprintf("in_port=%d,tun_id=%d,%s,%s", port["gvtun"], vnid, source, rest)
			}
			ip := func(src, dst string) string { return fmt.Sprintf("icmp,nw_src=%s,nw_dst=%s,nw_ttl=64", src, dst) }
			to := func(name string) string { return fmt.Sprintf("output:%d", port[name]) }
			out := from("gva", "61", "10.128.0.7", "198.51.100.1")
			type packet struct{ name, packet, want string }
			check := func(what string, in pipeline.Input, list ...packet) {
				t.Helper()
				for _, c := range list {
					if got, trace := verdict(t, b, in, c.packet); got != c.want {
						t.Errorf("%s: %s: %s, want %s\n%s", what, c.name, got, c.want, trace)
					}
				}
			}
			none := "drop: " + pipeline.DropNoEgress.String()
			noSource, transit := "spoof-guard: drop: "+pipeline.DropTunnelSource.String(), "forwarding: drop: "+pipeline.DropTransit.String()
			answer := func(vnid, vtep uint32, src, dst string) string { return tunnel(vnid, vtep, ip(src, dst)) }

			unsent := func(vtep uint32, src string, kind, code int) string {
				return tunnel(0, vtep, fmt.Sprintf("icmp,nw_src=%s,nw_dst=10.128.0.7,nw_ttl=64,icmp_type=%d,icmp_code=%d", src, kind, code))
			}
			check("by another host", leave(pipeline.Exit{VTEP: addr("192.0.2.2"), Index: 2}),
				packet{"out", out, to("gvtun")},
				packet{"to its own host's other address", from("gva", "61", "10.128.0.7", "172.17.0.1"), to("gv0")},
				packet{"the same of the other family", strings.Replace(from6, "2001:db8::1", "2001:db8:17::1", 1), to("gv0")},
				packet{"the holder's word that it was too big", unsent(2, "240.1.0.2", 3, 4), to("gva")},
				packet{"the holder's word that it went in circles", unsent(2, "240.1.0.2", 11, 0), to("gva")},
				packet{"what the holder says of a port of its own", unsent(2, "240.1.0.2", 3, 3), to("gv0")},
				packet{"the same by who is not the holder", unsent(3, "240.1.0.2", 3, 4), "spoof-guard: drop: " + pipeline.DropTunnelSource.String()},
				packet{"of the other family", from6, "forwarding: " + none},
				packet{"to a host of the cluster", from("gva", "61", "10.128.0.7", "192.0.2.2"), to("gv0")},
				packet{"to its gateway", from("gva", "61", "10.128.0.7", "10.128.0.1"), to("gv0")},
				packet{"within the network", from("gva", "61", "10.128.0.7", "10.128.2.9"), to("gvtun")},
				packet{"of another network", from("gvg", "67", "10.130.0.7", "198.51.100.1"), to("gv0")},
				packet{"the answer", answer(0, 2, "198.51.100.1", "10.128.0.7"), to("gva")},
				packet{"an answer by a host that is not its gateway", answer(0, 3, "198.51.100.1", "10.128.0.7"), noSource},
				packet{"an answer with a VNID", answer(5, 2, "198.51.100.1", "10.128.0.7"), noSource},
				packet{"an answer to another network", answer(0, 2, "198.51.100.1", "10.130.0.7"), noSource},
				packet{"an answer in a container's name", answer(0, 2, "10.128.3.9", "10.128.0.7"), "spoof-guard: range 10.128.3.0/24"},
				packet{"in the name of a subnet without that range", answer(0, 2, "10.129.0.9", "10.128.0.7"), noSource},
				packet{"in a gateway's name", answer(0, 2, "10.130.0.1", "10.128.0.7"), noSource},
				packet{"in a host's name", answer(0, 2, "240.1.0.9", "10.128.0.7"), noSource},
				packet{"what others send to the outside here", answer(5, 2, "10.128.2.9", "198.51.100.1"), transit},
			)
			// A published port of a container with rules, by its own host: the rules see whose connection it is.
			in := scene(mode, port)
			in.Exits = []pipeline.Exit{{VNID: 5, V4: true, VTEP: addr("192.0.2.2"), Index: 2, Track: true}}
			for _, lets := range []string{"198.51.100.0/24", "203.0.113.0/24"} {
				in.Policy = pipeline.Policy{
					Guards:  []pipeline.Guard{{Endpoint: "a", Addrs: []netip.Addr{addr("10.128.0.7")}, Ingress: true, IngressEpoch: 1}},
					Classes: []pipeline.Class{{ID: 1, Addrs: []netip.Addr{addr("10.128.0.7")}}},
					Rules: []pipeline.PolicyRule{{
						ID: 1, Direction: pipeline.Ingress, Priority: pipeline.PriorityNetworkPolicy, Action: pipeline.Accept, Subjects: []uint32{1},
						Blocks: []netip.Prefix{prefix(lets)}, AnyPort: true,
					}},
				}
				next, err := pipeline.Compile(in)
				if err != nil {
					t.Fatal(err)
				}
				if err := b.ApplyBundle(t.Context(), pipeline.Diff(flows, next).Lines()); err != nil {
					t.Fatal(err)
				}
				flows = next
				want := to("gva")
				if lets == "203.0.113.0/24" {
					want = "ingress-rules: drop: " + pipeline.DropIngress.String()
				}
				tuple := "tcp,ct_state=0x21,ct_nw_src=198.51.100.1,ct_nw_dst=10.128.0.7,ct_nw_proto=6,ct_tp_src=40000,ct_tp_dst=80,"
				packet := fmt.Sprintf("%sin_port=%d,dl_src=02:42:00:00:00:02,dl_dst=%s,nw_src=198.51.100.1,nw_dst=10.128.0.7,nw_ttl=64,tp_src=40000,tp_dst=80,tcp_flags=syn", tuple, port["gv0"], pipeline.RouterMAC)
				if got, trace := verdict(t, b, in, packet, "--ct-next", "trk,new", "--ct-next", "trk,new", "--ct-next", "trk,new"); got != want {
					t.Errorf("a published port, with a rule for %s: %s, want %s\n%s", lets, got, want, trace)
				}
			}

			out6, answer6 := from6, func(vnid, vtep uint32, src, dst string) string {
				return tunnel(vnid, vtep, fmt.Sprintf("icmp6,ipv6_src=%s,ipv6_dst=%s,nw_ttl=64", src, dst))
			}
			check("by IPv6, by another host", leave(pipeline.Exit{V6: true, VTEP: addr("192.0.2.2"), Index: 2}),
				packet{"out", out6, to("gvtun")},
				packet{"of the other family", out, "forwarding: " + none},
				packet{"the answer", answer6(0, 2, "2001:db8:9::1", "fd00:1::7"), to("gva")},
				packet{"an answer by a host that is not its gateway", answer6(0, 3, "2001:db8:9::1", "fd00:1::7"), noSource},
				packet{"an answer in a host's name", answer6(0, 2, "fd67:7261:7065::9", "fd00:1::7"), noSource},
				packet{"an answer in the network's name", answer6(0, 2, "fd00:1::9:9", "fd00:1::7"), noSource},
			)
			check("by IPv6, by this host", leave(pipeline.Exit{V6: true, Here: true}),
				packet{"out", out6, to("gv0")},
				packet{"of the other family", out, "forwarding: " + none},
				packet{"from another host", answer6(5, 2, "fd00:1::2:9", "2001:db8:9::1"), to("gv0")},
				packet{"to a host's own address", answer6(5, 2, "fd00:1::2:9", "fd67:7261:7065::9"), transit},
				packet{"to all", answer6(5, 2, "fd00:1::2:9", "ff02::1"), transit},
				packet{"to a neighbour", answer6(5, 2, "fd00:1::2:9", "fe80::9"), transit},
				packet{"the answer", fmt.Sprintf("in_port=%d,dl_src=02:42:00:00:00:02,dl_dst=%s,icmp6,ipv6_src=2001:db8:9::1,ipv6_dst=fd00:1::2:9,nw_ttl=64", port["gv0"], pipeline.RouterMAC), to("gvtun")},
			)
			// Some containers of the network alone, by their labels: the other address leaves by this host, or by the network's egress.
			plain := from("gva", "61", "10.128.0.8", "198.51.100.1")
			some := pipeline.Exit{VTEP: addr("192.0.2.2"), Index: 2, Listed: true, Addrs: []netip.Addr{addr("10.128.0.7")}}
			untold := "forwarding: drop: " + pipeline.DropUntold.String()
			check("by label, by another host", leave(some),
				packet{"out", out, to("gvtun")},
				packet{"without the label", plain, to("gv0")},
				packet{"to a host of the cluster", from("gva", "61", "10.128.0.7", "192.0.2.2"), to("gv0")},
				packet{"within the network", from("gva", "61", "10.128.0.7", "10.128.2.9"), to("gvtun")},
				packet{"the answer", answer(0, 2, "198.51.100.1", "10.128.0.7"), to("gva")},
				packet{"an answer by a host that is not its gateway", answer(0, 3, "198.51.100.1", "10.128.0.7"), noSource},
				packet{"an answer without the label", answer(0, 2, "198.51.100.1", "10.128.0.8"), noSource},
			)
			check("by label, and the network by a third host", leave(some, pipeline.Exit{VTEP: addr("2001:db8::3"), Index: 3, Listed: true, Addrs: []netip.Addr{addr("10.128.0.8")}}),
				packet{"the answer", answer(0, 2, "198.51.100.1", "10.128.0.7"), to("gva")},
				packet{"an answer of the network's", answer(0, 3, "198.51.100.1", "10.128.0.8"), to("gva")},
				packet{"an answer by the network's gateway", answer(0, 3, "198.51.100.1", "10.128.0.7"), noSource},
				packet{"an answer by the label's gateway", answer(0, 2, "198.51.100.1", "10.128.0.8"), noSource},
			)
			some.VTEP, some.Index = netip.Addr{}, 0
			check("by label, by nobody", leave(some),
				packet{"out", out, "forwarding: " + none},
				packet{"without the label", plain, to("gv0")},
			)
			some.Unknown = true
			check("of labels that are not known", leave(some),
				packet{"out", out, untold},
				packet{"to a host of the cluster", from("gva", "61", "10.128.0.7", "192.0.2.2"), to("gv0")},
				packet{"from outside by this host", from("gv0", "02", "198.51.100.1", "10.128.0.7"), to("gva")},
				packet{"an answer", answer(0, 2, "198.51.100.1", "10.128.0.7"), noSource},
			)
			check("by label, by this host", leave(pipeline.Exit{Here: true, Listed: true, Addrs: []netip.Addr{addr("10.128.0.7"), addr("10.128.2.9")}}),
				packet{"out", out, to("gv0")},
				packet{"without the label", plain, to("gv0")},
				packet{"from another host", answer(5, 2, "10.128.2.9", "198.51.100.1"), to("gv0")},
				packet{"from another host, without the label", answer(5, 2, "10.128.2.8", "198.51.100.1"), transit},
				packet{"with another host's source", answer(5, 3, "10.128.2.9", "198.51.100.1"), "spoof-guard: range 10.128.2.0/24"},
				packet{"the answer", from("gv0", "02", "198.51.100.1", "10.128.2.9"), to("gvtun")},
			)
			check("by label, by a host that may take it for another one", leave(pipeline.Exit{Listed: true, Unheard: true, Addrs: []netip.Addr{addr("10.128.0.7")}}),
				packet{"out", out, "forwarding: drop: " + pipeline.DropUnheard.String()},
				packet{"without the label", plain, to("gv0")},
			)
			check("by nobody", leave(pipeline.Exit{}),
				packet{"out", out, "forwarding: " + none},
				packet{"an answer", answer(0, 2, "198.51.100.1", "10.128.0.7"), noSource},
				packet{"from outside by this host", from("gv0", "02", "198.51.100.1", "10.128.0.7"), to("gva")},
			)
			check("by this host", leave(pipeline.Exit{Here: true}),
				packet{"out", out, to("gv0")},
				packet{"of the other family", from6, "forwarding: " + none},
				packet{"from another host", answer(5, 2, "10.128.2.9", "198.51.100.1"), to("gv0")},
				packet{"of another network", answer(6, 2, "10.129.2.9", "198.51.100.1"), transit},
				packet{"with another host's source", answer(5, 3, "10.128.2.9", "198.51.100.1"), "spoof-guard: range 10.128.2.0/24"},
				packet{"to a container that is not here", answer(5, 2, "10.128.2.9", "10.130.2.8"), transit},
				packet{"to a host's own address", answer(5, 2, "10.128.2.9", "240.1.0.9"), transit},
				packet{"to all", answer(5, 2, "10.128.2.9", "224.0.0.9"), transit},
				packet{"to a neighbour, as a cloud's metadata", answer(5, 2, "10.128.2.9", "169.254.169.254"), transit},
				packet{"VXLAN", tunnel(5, 2, "udp,nw_src=10.128.2.9,nw_dst=198.51.100.1,nw_ttl=64,udp_dst=4789"), "forwarding: drop: " + pipeline.DropForgedTunnel.String()},
				packet{"the answer", from("gv0", "02", "198.51.100.1", "10.128.2.9"), to("gvtun")},
			)
		})
	}
}
