package pipeline

import (
	"maps"
	"net/netip"
)

// Count is packets and their bytes, Ethernet headers included.
type Count struct{ Packets, Bytes uint64 }

// Tally counts packets that the flows would have let through, and that passed by the
// switch (package fastpath).
type Tally struct {
	From, To             map[netip.Addr]Count   // sent by, and delivered to, an address of a local endpoint
	Into, OutOf          map[netip.Prefix]Count // sent into the tunnel to a range, and come out of it from one
	VNIDs                map[uint32]Count       // between ends of equal VNIDs
	FromVNID0, OnlyToOf0 Count                  // or the sender, or the receiver alone, has VNID 0
}

// Credit returns what each of the flows of in would have counted had the packets of t
// come to the switch.
func Credit(in Input, flows []Flow, t Tally) []Count {
	credit := map[flowKey]Count{}
	add := func(s Stage, priority int, m match, c Count) {
		credit[flowKey{uint8(s), uint16(priority), m.String()}] = c
	}
	sent, delivered := total(maps.Values(t.From)), total(maps.Values(t.To))
	into, outOf := total(maps.Values(t.Into)), total(maps.Values(t.OutOf))
	add(Classify, 0, match{}, sent)
	add(Classify, 100, match{}.inPort(in.TunnelPort), outOf)
	// None of them is from or to an endpoint with rules (Port.Plain): no connection is looked up.
	for _, s := range []Stage{ARPResponder, NDReply, Conntrack, EgressPolicy, Service, IngressPolicy} {
		add(s, 0, match{}, sum(sent, outOf))
	}
	add(Output, 200, match{}.reg(regOutPort, in.TunnelPort), into)
	add(Output, 50, match{}, delivered)

	for _, p := range in.Ports {
		for _, a := range p.Addrs {
			add(SpoofGuard, 300, match{}.inPort(p.OFPort).ipSrc(host(a)).ethSrc(p.MAC), t.From[a])
			add(Forwarding, 3000, match{}.ipDst(host(a)), t.To[a])
		}
	}
	c := compiler{in: objects{Input: in}, index: map[netip.Addr]uint32{}}
	vtep := map[netip.Addr]Count{}
	for _, v := range in.VTEPs {
		c.index[v.Addr] = v.Index
	}
	for _, r := range in.Routes {
		i, ok := c.index[r.VTEP]
		if !ok {
			continue
		}
		vtep[r.VTEP] = sum(vtep[r.VTEP], t.OutOf[r.Prefix])
		m := match{}.reg(regClass, classTunnel).ipSrc(r.Prefix).reg(regVTEP, i).reg(regSrcVNID, r.VNID)
		add(SpoofGuard, byLength(r.Prefix, 1), m, t.OutOf[r.Prefix])
		add(Forwarding, byLength(r.Prefix, 1), match{}.ipDst(r.Prefix), t.Into[r.Prefix])
	}
	for _, v := range in.VTEPs {
		add(TunnelSource, 100, c.fromVTEP(v), vtep[v.Addr])
	}
	add(VNIDCheck, 200, match{}.reg(regSrcVNID, 0), t.FromVNID0)
	add(VNIDCheck, 190, match{}.reg(regDstVNID, 0), t.OnlyToOf0)
	for v, n := range t.VNIDs {
		add(VNIDCheck, 100, match{}.reg(regSrcVNID, v).reg(regDstVNID, v), n)
	}
	out := make([]Count, len(flows))
	for i, f := range flows {
		out[i] = credit[f.key()]
	}
	return out
}

func total(counts func(func(Count) bool)) (t Count) {
	for c := range counts {
		t = sum(t, c)
	}
	return t
}

func sum(a, b Count) Count { return Count{a.Packets + b.Packets, a.Bytes + b.Bytes} }
