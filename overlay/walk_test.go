package overlay

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/grapevine-net/grapevine/overlay/pipeline"
	"github.com/grapevine-net/grapevine/overlay/walk"
)

// TestWalk: what the switch says of a packet is read as it does it, in both tunnel modes; of a flow that
// somebody deleted or put there, too.
func TestWalk(t *testing.T) {
	for _, mode := range []pipeline.TunnelMode{pipeline.Metadata, pipeline.HeaderBits} {
		t.Run(map[pipeline.TunnelMode]string{pipeline.Metadata: "metadata", pipeline.HeaderBits: "header bits"}[mode], func(t *testing.T) {
			b, port := sceneSwitch(t, mode)
			o := &Overlay{cfg: Config{Bridge: b}, last: result{input: scene(mode, port)}}
			from := func(endpoint, src, dst string) walk.Packet {
				return walk.Packet{Src: addr(src), Dst: addr(dst), Proto: walk.TCP, From: 61001, To: 80, Endpoint: endpoint}
			}
			tunnel := func(vtep string, vnid uint32, src, dst string) walk.Packet {
				return walk.Packet{Src: addr(src), Dst: addr(dst), Proto: walk.ICMP, Reply: true, VTEP: addr(vtep), VNID: vnid}
			}
			check := func(what string, p walk.Packet, want string) {
				t.Helper()
				path, err := o.Walk(t.Context(), p)
				got := path.End.String()
				if path.End.Dropped() {
					got = fmt.Sprintf("%s: %s", path.Last().Stage, path.Last().Object)
				}
				if err != nil || got != want {
					t.Errorf("%s: %q, %v, want %q", what, got, err, want)
				}
			}
			check("to another host", from("a", "10.128.0.7", "10.128.2.9"), "to VTEP 192.0.2.2 with VNID 5")
			check("to a host behind IPv6", from("a", "10.128.0.7", "10.128.3.9"), "to VTEP 2001:db8::3 with VNID 5")
			check("IPv6", from("a", "fd00:1::7", "fd00:1::2:9"), "to VTEP 192.0.2.2 with VNID 5")
			check("to a global network", from("a", "10.128.0.7", "10.130.0.7"), "to endpoint g")
			check("to the gateway", from("a", "10.128.0.7", "10.128.0.1"), "to the gateway")
			check("to the outside", from("a", "10.128.0.7", "198.51.100.1"), "to the gateway")
			check("from the outside", walk.Packet{Src: addr("198.51.100.1"), Dst: addr("10.128.0.7"), Proto: walk.UDP, From: 53, To: 61001, Reply: true}, "to endpoint a")
			check("other network", from("a", "10.128.0.7", "10.129.0.7"), "vnid-check: drop: "+pipeline.DropOtherNetwork.String())
			check("spoofed", from("a", "10.128.0.8", "10.128.2.9"), "spoof-guard: endpoint a")
			check("from another host", tunnel("192.0.2.2", 5, "10.128.2.9", "10.128.0.7"), "to endpoint a")
			check("from another VTEP", tunnel("2001:db8::3", 5, "10.128.2.9", "10.128.0.7"), "spoof-guard: range 10.128.2.0/24")
			check("from another host, IPv6", walk.Packet{Src: addr("fd00:1::2:9"), Dst: addr("fd00:1::7"), Proto: walk.ICMPv6, VTEP: addr("192.0.2.2"), VNID: 5}, "to endpoint a")

			change := func(f pipeline.Flow, delete bool) {
				t.Helper()
				c := pipeline.Changes{Add: []pipeline.Flow{f}}
				if delete {
					c = pipeline.Changes{Delete: []pipeline.Flow{f}}
				}
				if err := b.ApplyBundle(t.Context(), c.Lines()); err != nil {
					t.Fatal(err)
				}
			}
			flows, err := pipeline.Compile(scene(mode, port))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range flows {
				if pipeline.Stage(f.Table) == pipeline.Forwarding && f.Match == "ip,nw_dst=10.128.2.0/24" {
					change(f, true)
					check("a range's flow is deleted", from("a", "10.128.0.7", "10.128.2.9"), "forwarding: range 10.128.0.0/22")
					change(f, false)
				}
			}
			change(pipeline.Flow{Table: uint8(pipeline.VNIDCheck), Priority: 999, Match: "ip,nw_dst=10.128.2.9", Actions: "drop"}, false)
			check("somebody's own flow", from("a", "10.128.0.7", "10.128.2.9"), "vnid-check: a flow that is none of grapevine's")
		})
	}
}

// TestWalkExposed: what comes from outside by another host to an exposed port, and the answer to it, which goes back by
// that host.
func TestWalkExposed(t *testing.T) {
	b, port := sceneSwitch(t, pipeline.HeaderBits)
	in := scene(pipeline.HeaderBits, port)
	before, err := pipeline.Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	in.Exposed = []pipeline.Exposed{{Addr: addr("10.128.0.7"), Port: 443, VNID: 5}, {Addr: addr("10.128.2.9"), Port: 443, VNID: 5}}
	flows, err := pipeline.Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.ApplyBundle(t.Context(), pipeline.Diff(before, flows).Lines()); err != nil {
		t.Fatal(err)
	}
	o := &Overlay{cfg: Config{Bridge: b}, last: result{input: in}}
	comes := walk.Packet{Src: addr("198.51.100.1"), Dst: addr("10.128.0.7"), Proto: walk.TCP, From: 61001, To: 443, VTEP: addr("192.0.2.2")}
	answer := comes.Back()
	answer.Endpoint, answer.Via = "a", addr("192.0.2.2")
	away := walk.Packet{Src: addr("198.51.100.1"), Dst: addr("10.128.2.9"), Proto: walk.TCP, From: 61001, To: 443}
	back := away.Back()
	back.VTEP, back.VNID = addr("192.0.2.2"), 5
	for _, c := range []struct {
		what string
		p    walk.Packet
		want string
	}{
		{"in, by another host", comes, "to endpoint a"},
		{"its answer", answer, "to VTEP 192.0.2.2 with VNID 5"},
		{"to another host's", away, "to VTEP 192.0.2.2 with VNID 0"},
		{"its answer, out", back, "to the gateway"},
	} {
		if path, err := o.Walk(t.Context(), c.p); err != nil || path.End.String() != c.want {
			t.Errorf("%s: %s, %v, want %s", c.what, path.End, err, c.want)
		}
	}
	answer.Via = addr("192.0.2.99")
	if path, err := o.Walk(t.Context(), answer); err == nil {
		t.Errorf("by a host that is none: %s", path.End)
	}
}

// TestWalkPolicy: of a connection that rules let begin, the switch lets the answer back, as it will when connection
// tracking knows of it; what they do not let begin ends at them.
func TestWalkPolicy(t *testing.T) {
	for _, mode := range []pipeline.TunnelMode{pipeline.Metadata, pipeline.HeaderBits} {
		t.Run(map[pipeline.TunnelMode]string{pipeline.Metadata: "metadata", pipeline.HeaderBits: "header bits"}[mode], func(t *testing.T) { walksByPolicy(t, mode) })
	}
}

func walksByPolicy(t *testing.T, mode pipeline.TunnelMode) {
	b, port := sceneSwitch(t, mode)
	in := scene(mode, port)
	before, err := pipeline.Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	in.Policy = pipeline.Policy{
		Guards:  []pipeline.Guard{{Endpoint: "a", Addrs: in.Ports[0].Addrs, VNID: 5, Ingress: true, Egress: true, IngressEpoch: 3, EgressEpoch: 4}},
		Classes: []pipeline.Class{{ID: 1, Addrs: in.Ports[0].Addrs}, {ID: 2, Addrs: []netip.Addr{addr("10.128.2.9")}}},
		Rules: []pipeline.PolicyRule{{
			ID: 7, Direction: pipeline.Egress, Subjects: []uint32{1}, Action: pipeline.Accept, Priority: 10000, Peers: []uint32{2},
			Ports: []pipeline.PortRange{{Proto: walk.TCP, From: 80, To: 80}},
		}},
	}
	after, err := pipeline.Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.ApplyBundle(t.Context(), pipeline.Diff(before, after).Lines()); err != nil {
		t.Fatal(err)
	}
	o := &Overlay{cfg: Config{Bridge: b}, last: result{input: in}}
	a, db := addr("10.128.0.7"), addr("10.128.2.9")
	out := func(port uint16) walk.Packet {
		return walk.Packet{Src: a, Dst: db, Proto: walk.TCP, From: 61001, To: port, Endpoint: "a"}
	}
	back := out(80).Back()
	back.VTEP, back.VNID = addr("192.0.2.2"), 5
	begins := walk.Packet{Src: db, Dst: a, Proto: walk.TCP, From: 61001, To: 80, VTEP: back.VTEP, VNID: 5}
	for what, c := range map[string]struct {
		walk.Packet
		end, stage string
	}{
		"allowed":       {out(80), "to VTEP 192.0.2.2 with VNID 5", "output"},
		"another port":  {out(81), "dropped", "egress-rules"},
		"its answer":    {back, "to endpoint a", "output"},
		"no answer":     {begins, "dropped", "ingress-rules"},
		"a ping of it":  {walk.Packet{Src: a, Dst: db, Proto: walk.ICMP, Endpoint: "a"}, "dropped", "egress-rules"},
		"from the host": {walk.Packet{Src: addr("10.128.0.1"), Dst: a, Proto: walk.TCP, From: 61001, To: 80}, "to endpoint a", "output"},
	} {
		path, err := o.Walk(t.Context(), c.Packet)
		if err != nil || path.End.String() != c.end || path.Last().Stage != c.stage {
			t.Errorf("%s: %s at %s, %v, want %s at %s", what, path.End, path.Last().Stage, err, c.end, c.stage)
		}
	}
}
