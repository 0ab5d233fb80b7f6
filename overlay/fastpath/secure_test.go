package fastpath

import (
	"testing"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
	"github.com/grapevine-net/grapevine/overlay/walk"
)

// TestSecure: a path that carries encrypted networks alone has no program before there is one, then none but at their containers' interfaces,
// and leaves to the switch what does not go in WireGuard without VXLAN.
func TestSecure(t *testing.T) {
	a, _ := insideHosts(t)
	plain := a.newContainer("b", "10.128.0.8")
	a.in.Subnets = append(a.in.Subnets, pipeline.Subnet{Prefix: prefixes("10.128.4.0/22")[0], VNID: 6})
	a.in.Ports = append(a.in.Ports, pipeline.Port{MAC: macs["b"], Addrs: addrs("10.128.4.8"), VNID: 6, Endpoint: "b", Plain: true})
	a.in.Routes = append(a.in.Routes, pipeline.Route{Prefix: prefixes("10.128.5.0/24")[0], VNID: 6, VTEP: a.in.VTEPs[0].Addr})
	a.apply()
	at := func(device, program string) (is bool) {
		t.Helper()
		a.Do(func() {
			id, err := link.AttachedTC(device, link.Ingress, program)
			must(t, err)
			is = id != 0
		})
		return is
	}
	if !at("ghb", endpointProgram) {
		t.Fatal("no program at the interface of a network that is not encrypted")
	}
	a.Do(func() {
		must(t, a.path.Stop())
		must(t, Secure{a.path}.Start())
	})
	in := a.in
	a.in.Encrypted = nil
	a.apply()
	if on, _ := a.path.On(); on || a.path.objs != nil {
		t.Error("programs are loaded before there is an encrypted network")
	}
	if carries, err := (Secure{a.path}).State(); carries || err != nil {
		t.Errorf("without an encrypted network: %v, %v", carries, err)
	}
	a.in = in
	a.apply()
	if carries, err := (Secure{a.path}).State(); !carries || err != nil {
		t.Errorf("with one: %v, %v", carries, err)
	}
	for _, c := range []struct {
		device, program string
		is              bool
	}{{"gha", endpointProgram, true}, {"ghb", endpointProgram, false}, {"gvvxlan", tunnelProgram, false}} {
		if is := at(c.device, c.program); is != c.is {
			t.Errorf("at %s the program is: %v", c.device, is)
		}
	}
	held := a.path.tables.held
	for p, r := range held.Ranges {
		if r.VTEP.IsValid() && r.VNID != 5 {
			t.Errorf("%s of another network is known: %+v", p, r)
		}
	}
	if l := held.Locals[addrs("10.128.4.8")[0]]; l != (Local{}) {
		t.Errorf("a container of another network is known: %+v", l)
	}
	a.Do(func() { must(t, Inside{a.path}.Begin(link.WireGuard)) })
	a.set(a.ways)
	before, sent := a.byTunnel(), a.counts().Sent.Packets
	if n := a.ping("10.128.1.7", 56); n != 5 {
		t.Fatalf("%d of 5 pings were answered: %+v", n, a.counts())
	}
	if n := a.counts().Sent.Packets - sent; n != 5 {
		t.Errorf("%d packets went without VXLAN", n)
	}
	walks := func(plain bool, p walk.Packet) {
		t.Helper()
		a.Do(func() {
			fast, err := a.path.Walk(p, a.in)
			must(t, err)
			if !fast.On || fast.Plain != (plain && p.Endpoint != "") || (fast.End != nil) != plain {
				t.Errorf("%+v: %+v", p, fast)
			}
		})
	}
	out := walk.Packet{Src: addrs("10.128.0.7")[0], Dst: addrs("10.128.1.7")[0], Proto: walk.TCP, To: 80, Endpoint: "a"}
	back := walk.Packet{Src: out.Dst, Dst: out.Src, Proto: walk.TCP, Reply: true, VTEP: a.in.VTEPs[0].Addr, VNID: 5, Plain: true}
	walks(true, out)
	walks(true, back)
	back.Plain = false
	walks(false, back)
	ping(plain, "10.128.5.7", 56)
	counted := tally(a.host)
	w := a.ways
	w.Hosts = nil
	a.set(w)
	walks(false, out)
	if n := a.ping("10.128.1.7", 56); n != 0 { // there is no switch
		t.Errorf("%d of 5 pings were answered that are the switch's", n)
	}
	for what, n := range less(tally(a.host), counted) {
		if n != (pipeline.Count{}) {
			t.Errorf("%s: %+v was counted that the switch counts", what, n)
		}
	}
	if n := a.byTunnel() - before; n != 0 {
		t.Errorf("%d packets went by the VXLAN device", n)
	}
}

// TestSecureAll: where all is encrypted, all is known.
func TestSecureAll(t *testing.T) {
	in := pipeline.Input{Ports: []pipeline.Port{{Endpoint: "a", Plain: true}}, Routes: []pipeline.Route{{Prefix: prefixes("10.128.1.0/24")[0], VTEP: addrs("fd67:7261:7065:1::2")[0]}}}
	p := New(Config{Underlay: Underlay{Encrypted: true}})
	p.secure.only = true
	got := Secure{p}.part(in)
	if !got.Ports[0].Plain || !got.Routes[0].VTEP.IsValid() || !(Secure{p}).attends(in.Ports[0]) {
		t.Errorf("%+v", got)
	}
	p.cfg.Underlay.Encrypted = false
	got = Secure{p}.part(in)
	if got.Ports[0].Plain || got.Routes[0].VTEP.IsValid() || (Secure{p}).attends(in.Ports[0]) || !in.Ports[0].Plain {
		t.Errorf("%+v", got)
	}
}
