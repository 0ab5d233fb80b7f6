package overlay

import (
	"fmt"
	"testing"

	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// TestExposed: Open vSwitch's own verdicts on what comes from outside to an exposed port by another host, on its answer,
// and on what other hosts' exposed ports answer by this one, in both datapaths' form.
func TestExposed(t *testing.T) {
	for _, mode := range []pipeline.TunnelMode{pipeline.Metadata, pipeline.HeaderBits} {
		t.Run(map[pipeline.TunnelMode]string{pipeline.Metadata: "metadata", pipeline.HeaderBits: "header bits"}[mode], func(t *testing.T) {
			b, port := sceneSwitch(t, mode)
			in := scene(mode, port)
			flows, err := pipeline.Compile(in)
			if err != nil {
				t.Fatal(err)
			}
			from := func(name, mac, rest string) string {
				return fmt.Sprintf("in_port=%d,dl_src=02:42:00:00:00:%s,dl_dst=%s,%s", port[name], mac, pipeline.RouterMAC, rest)
			}
			tunnel := func(vnid, vtep uint32, rest string) string {
				if mode == pipeline.HeaderBits {
					src, dst := headerBits(vnid, vtep)
					return fmt.Sprintf("in_port=%d,dl_src=%s,dl_dst=%s,%s", port["gvtun"], src, dst, rest)
				}
				source := map[uint32]string{2: "tun_src=192.0.2.2", 3: "tun_ipv6_src=2001:db8::3"}[vtep]
				return fmt.Sprintf("in_port=%d,tun_id=%d,%s,%s", port["gvtun"], vnid, source, rest)
			}
			ip := func(proto, src, dst, more string) string {
				return fmt.Sprintf("%s,nw_src=%s,nw_dst=%s,nw_ttl=64,%s", proto, src, dst, more)
			}
			to := func(name string) string { return fmt.Sprintf("output:%d", port[name]) }
			type packet struct {
				name, packet, ct, want string
			}
			check := func(list ...packet) {
				t.Helper()
				for _, c := range list {
					trace := []string{c.packet}
					if c.ct != "" {
						trace = append(trace, "--ct-next", c.ct)
					}
					if got, text := verdict(t, b, in, trace...); got != c.want {
						t.Errorf("%s: %s, want %s\n%s", c.name, got, c.want, text)
					}
				}
			}
			const client, replica = "198.51.100.1", "10.128.0.7"
			noSource, transit := "spoof-guard: drop: "+pipeline.DropTunnelSource.String(), "forwarding: drop: "+pipeline.DropTransit.String()
			in443, answer := ip("tcp", client, replica, "tp_dst=443,tcp_flags=syn"), ip("tcp", replica, client, "tp_src=443,tcp_flags=syn|ack")
			out := ip("tcp", "10.128.2.9", client, "tp_src=443,tcp_flags=ack")
			check(
				packet{"before it is exposed", tunnel(0, 2, in443), "", noSource},
				packet{"its answer", from("gva", "61", answer), "", to("gv0")},
				packet{"another host's", tunnel(5, 2, out), "", transit},
			)

			in.Exposed = []pipeline.Exposed{
				{Addr: addr(replica), Port: 443, VNID: 5}, {Addr: addr(replica), UDP: true, Port: 53, VNID: 5}, {Addr: addr("fd00:1::7"), Port: 443, VNID: 5},
				{Addr: addr("10.128.2.9"), Port: 443, VNID: 5}, {Addr: addr("10.129.0.7"), Port: 443, VNID: 6},
			}
			next, err := pipeline.Compile(in)
			if err != nil {
				t.Fatal(err)
			}
			applied(t, b, flows, next)

			none, noRoute := "expose-in: drop: "+pipeline.DropNotExposed.String(), "expose-back: drop: "+pipeline.DropNoRoute.String()
			transitWhole := "expose-back: drop: " + pipeline.DropTransit.String()
			whole := func(proto int, src, dst string, from, to uint16, rest string) string {
				return fmt.Sprintf("ct_state=0x21,ct_nw_src=%s,ct_nw_dst=%s,ct_nw_proto=%d,ct_tp_src=%d,ct_tp_dst=%d,%s", src, dst, proto, from, to, rest)
			}
			via := func(vtep uint32, rest string) string { return fmt.Sprintf("ct_mark=%d,%s", vtep, rest) }
			check(
				packet{"in", tunnel(0, 2, in443), "trk,new", to("gva")},
				packet{"in, by another host", tunnel(0, 3, in443), "trk,new", to("gva")},
				packet{"in, later", tunnel(0, 2, in443), "trk,est", to("gva")},
				packet{"in, that fits nothing", tunnel(0, 2, in443), "trk,inv", none},
				packet{"in by UDP", tunnel(0, 2, ip("udp", client, replica, "udp_dst=53")), "trk,new", to("gva")},
				packet{"to another port", tunnel(0, 2, ip("tcp", client, replica, "tp_dst=22")), "", noSource},
				packet{"to the port, by UDP", tunnel(0, 2, ip("udp", client, replica, "udp_dst=443")), "", noSource},
				packet{"to another endpoint", tunnel(0, 2, ip("tcp", client, "10.130.0.7", "tp_dst=443")), "", noSource},
				packet{"to an internal network", tunnel(0, 2, ip("tcp", client, "10.129.0.7", "tp_dst=443")), "", noSource},
				packet{"with a VNID", tunnel(5, 2, in443), "", noSource},
				packet{"in a container's name", tunnel(0, 2, ip("tcp", "10.128.3.9", replica, "tp_dst=443")), "", "spoof-guard: range 10.128.3.0/24"},
				packet{"in the name of a subnet without that range", tunnel(0, 2, ip("tcp", "10.129.0.9", replica, "tp_dst=443")), "", noSource},
				packet{"in a gateway's name", tunnel(0, 2, ip("tcp", "10.130.0.1", replica, "tp_dst=443")), "", noSource},
				packet{"in a host's name", tunnel(0, 2, ip("tcp", "240.1.0.9", replica, "tp_dst=443")), "", noSource},
				packet{"an error of the connection", tunnel(0, 2, ip("icmp", client, replica, "icmp_type=3,icmp_code=4")), "trk,rel", to("gva")},
				packet{"an error of none", tunnel(0, 2, ip("icmp", client, replica, "icmp_type=3,icmp_code=4")), "trk,new", none},
				packet{"a ping", tunnel(0, 2, ip("icmp", client, replica, "icmp_type=8")), "", noSource},
				packet{"by this host", from("gv0", "02", in443), "trk,new", to("gva")},
				packet{"by this host, to another port", from("gv0", "02", ip("tcp", client, replica, "tp_dst=22")), "", to("gva")},
				packet{"a later fragment, by this host", whole(17, client, replica, 0, 0, from("gv0", "02", ip("udp", client, replica, "nw_frag=later"))), "trk,est", to("gva")},
				// No fragment has a port, not even the first: connection tracking, which has seen all of it, says which.
				packet{"a first fragment", whole(17, client, replica, 9, 53, tunnel(0, 2, ip("udp", client, replica, "nw_frag=first"))), "trk,new", to("gva")},
				packet{"a later fragment", whole(17, client, replica, 0, 0, tunnel(0, 2, ip("udp", client, replica, "nw_frag=later"))), "trk,est", to("gva")},
				packet{"a fragment to another port", whole(17, client, replica, 9, 54, tunnel(0, 2, ip("udp", client, replica, "nw_frag=first"))), "trk,new", none},
				packet{"a later fragment of an answer", whole(17, replica, client, 9, 53, tunnel(0, 2, ip("udp", client, replica, "nw_frag=later"))), "trk,est,rpl", none},
				packet{"a fragment of TCP", whole(6, client, replica, 9, 443, tunnel(0, 2, ip("tcp", client, replica, "nw_frag=first"))), "trk,est", to("gva")},
				packet{"a later fragment of another protocol", whole(132, client, replica, 0, 0, tunnel(0, 2, ip("sctp", client, replica, "nw_frag=later"))), "trk,new", none},
				packet{"a fragment of TCP to the port of UDP", whole(6, client, replica, 9, 53, tunnel(0, 2, ip("tcp", client, replica, "nw_frag=first"))), "trk,new", none},
				packet{"a fragment in a container's name", tunnel(0, 2, ip("udp", "10.128.3.9", replica, "nw_frag=first")), "", "spoof-guard: range 10.128.3.0/24"},

				packet{"the answer to who came by a host", via(2, from("gva", "61", answer)), "trk,est,rpl", to("gvtun")},
				packet{"to who came by this one", via(0, from("gva", "61", answer)), "trk,est,rpl", to("gv0")},
				packet{"to who came by a host that is gone", via(9, from("gva", "61", answer)), "trk,est,rpl", noRoute},
				packet{"to who is one of the cluster's hosts", via(2, from("gva", "61", ip("tcp", replica, "192.0.2.2", "tp_src=443"))), "trk,est,rpl", to("gvtun")},
				packet{"what is no answer", from("gva", "61", answer), "trk,new", to("gv0")},
				packet{"what is no answer, to gossip's port of a host", from("gva", "61", ip("tcp", replica, "192.0.2.2", "tp_src=443,tp_dst=7947")), "trk,new", "host-guard: drop: " + pipeline.DropGossip.String()},
				packet{"from another port", from("gva", "61", ip("tcp", replica, client, "tp_src=22")), "", to("gv0")},
				packet{"within the network", from("gva", "61", ip("tcp", replica, "10.128.2.9", "tp_src=443")), "", to("gvtun")},
				packet{"an error that it sends", via(2, from("gva", "61", ip("icmp", replica, client, "icmp_type=3,icmp_code=3"))), "trk,rel,rpl", to("gvtun")},

				packet{"another host's answer", tunnel(5, 2, out), "", to("gv0")},
				packet{"from another port of it", tunnel(5, 2, ip("tcp", "10.128.2.9", client, "tp_src=22")), "", transit},
				packet{"a fragment of it", whole(6, "10.128.2.9", client, 443, 9, tunnel(5, 2, ip("tcp", "10.128.2.9", client, "nw_frag=first"))), "trk,new", to("gv0")},
				packet{"a later fragment of it", whole(6, "10.128.2.9", client, 443, 9, tunnel(5, 2, ip("tcp", "10.128.2.9", client, "nw_frag=later"))), "trk,new", to("gv0")},
				packet{"a fragment from another port of it", whole(6, "10.128.2.9", client, 22, 9, tunnel(5, 2, ip("tcp", "10.128.2.9", client, "nw_frag=first"))), "trk,new", transitWhole},
				packet{"a fragment from another protocol's port", whole(17, "10.128.2.9", client, 443, 9, tunnel(5, 2, ip("udp", "10.128.2.9", client, "nw_frag=later"))), "trk,new", transitWhole},
				packet{"a fragment from another container", tunnel(5, 2, ip("tcp", "10.128.2.8", client, "nw_frag=first")), "", transit},
				packet{"a fragment to a container that is not here", tunnel(5, 2, ip("tcp", "10.128.2.9", "10.130.0.8", "nw_frag=first")), "", transit},
				packet{"from another container", tunnel(5, 2, ip("tcp", "10.128.2.8", client, "tp_src=443")), "", transit},
				packet{"from a host that has not the range", tunnel(5, 3, out), "", "spoof-guard: range 10.128.2.0/24"},
				packet{"to a container that is not here", tunnel(5, 2, ip("tcp", "10.128.2.9", "10.130.0.8", "tp_src=443")), "", transit},
				packet{"to a host's own address", tunnel(5, 2, ip("tcp", "10.128.2.9", "240.1.0.9", "tp_src=443")), "", transit},
			)

			// With an egress all else leaves by its gateway.
			flows = next
			in.Exits = []pipeline.Exit{{VNID: 5, VTEP: addr("2001:db8::3"), Index: 3, V4: true, Track: true}}
			if next, err = pipeline.Compile(in); err != nil {
				t.Fatal(err)
			}
			if err := b.ApplyBundle(t.Context(), pipeline.Diff(flows, next).Lines()); err != nil {
				t.Fatal(err)
			}
			check(
				packet{"with an egress: the answer to who came by a host", via(2, from("gva", "61", answer)), "trk,est,rpl", to("gvtun")},
				packet{"with an egress: to who came by this one", via(0, from("gva", "61", answer)), "trk,est,rpl", to("gv0")},
				packet{"with an egress: what is no answer", from("gva", "61", answer), "trk,new", to("gvtun")},
			)

			// And where this host is the gateway, all of it by this one.
			flows = next
			in.Exits = []pipeline.Exit{{VNID: 5, Here: true, V4: true, Track: true}}
			if next, err = pipeline.Compile(in); err != nil {
				t.Fatal(err)
			}
			if err := b.ApplyBundle(t.Context(), pipeline.Diff(flows, next).Lines()); err != nil {
				t.Fatal(err)
			}
			vxlan := whole(17, "10.128.2.9", client, 9, in.VXLANPort, tunnel(5, 2, ip("udp", "10.128.2.9", client, "nw_frag=first")))
			check(
				packet{"as a gateway: another host's answer", tunnel(5, 2, out), "", to("gv0")},
				packet{"as a gateway: from another port of it", tunnel(5, 2, ip("tcp", "10.128.2.9", client, "tp_src=22")), "", to("gv0")},
				packet{"as a gateway: a fragment of it", whole(6, "10.128.2.9", client, 443, 9, tunnel(5, 2, ip("tcp", "10.128.2.9", client, "nw_frag=first"))), "trk,new", to("gv0")},
				packet{"as a gateway: a fragment from another port of it", whole(6, "10.128.2.9", client, 22, 9, tunnel(5, 2, ip("tcp", "10.128.2.9", client, "nw_frag=first"))), "trk,new", to("gv0")},
				packet{"as a gateway: a fragment of a ping", whole(1, "10.128.2.9", client, 8, 0, tunnel(5, 2, ip("icmp", "10.128.2.9", client, "nw_frag=later"))), "trk,new", to("gv0")},
				packet{"as a gateway: VXLAN in fragments", vxlan, "trk,new", "expose-back: drop: " + pipeline.DropForgedTunnel.String()},
			)
		})
	}
}
