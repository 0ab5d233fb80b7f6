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
	ToGateway            map[netip.Prefix]Count // sent to the gateway for a range
	FromGateway          map[netip.Prefix]Count // delivered from the gateway, sent from a range
	VNIDs                map[uint32]Count       // sent with a VNID to its own realm, or everywhere if that is its realm
	ToGroups, InGroups   map[GroupKey]Count     // sent to a group by endpoints here, and come for it from other hosts
	FromVNID0, OnlyToOf0 Count                  // or the sender, or the receiver alone, has VNID 0
	// Settled is what of all this was of connections that rules had let through (Input.Generation): of TCP, of TCP over IPv6, of
	// UDP, of UDP over IPv6; then first packets of TCP, and of TCP over IPv6, what else has SYN, FIN or RST of these, and errors of
	// ICMP, and of ICMPv6, about connections of theirs. Rules is what each rule of its ID had, and Begun what of that were first packets.
	Settled      [10]Settled
	Rules, Begun map[uint32]Count
}

// Where in Tally.Settled first packets are, those with SYN, FIN or RST, and errors.
const tallyBegun, tallyEdges, tallyErrors = 4, 6, 8

// Settled is what went into the tunnel by a rule for egress, or for ingress, to containers, and to the gateway.
type Settled struct{ Egress, Ingress, Containers, Gateway Count }

func (s Settled) and(o Settled) Settled {
	return Settled{sum(s.Egress, o.Egress), sum(s.Ingress, o.Ingress), sum(s.Containers, o.Containers), sum(s.Gateway, o.Gateway)}
}

func (s Settled) all() Count { return sum(sum(s.Egress, s.Ingress), sum(s.Containers, s.Gateway)) }

// Credit returns what each of the flows of in would have counted had the packets of t
// come to the switch.
func Credit(in Input, flows []Flow, t Tally) []Count {
	credit := map[flowKey]Count{}
	add := func(s Stage, priority int, m match, c Count) {
		credit[flowKey{uint8(s), uint16(priority), m.String()}] = c
	}
	sent, delivered := total(maps.Values(t.From)), total(maps.Values(t.To))
	into, outOf := total(maps.Values(t.Into)), total(maps.Values(t.OutOf))
	toGateway, fromGateway := total(maps.Values(t.ToGateway)), total(maps.Values(t.FromGateway))
	add(Classify, otherwise, match{}, sent)
	add(Classify, classifyPort, match{}.inPort(in.GatewayPort), fromGateway)
	inside := t.inside(in)
	add(Classify, classifyPort, match{}.inPort(in.TunnelPort), without(outOf, inside))
	if in.InsidePort != 0 {
		add(Classify, classifyPort, match{}.inPort(in.InsidePort), inside)
	}
	settled, marked, begun := creditSettled(in, t, add)
	all := sum(sum(sent, outOf), fromGateway)
	for _, s := range []Stage{ARPResponder, NDReply, Service} {
		add(s, otherwise, match{}, all)
	}
	add(EgressPolicy, otherwise, match{}, without(all, begun))
	// Of no other connection is anything looked up.
	add(Conntrack, otherwise, match{}, without(all, settled.all()))
	// Copies for groups do not come there.
	add(IngressPolicy, otherwise, match{}, without(sum(sum(delivered, into), toGateway), settled.all()))
	creditGroups(in, t, add)
	add(Output, outputTunnel, match{}.reg(regOutPort, in.TunnelPort), without(into, sum(marked.Egress, marked.Ingress)))
	add(Output, outputPort, match{}, without(sum(delivered, toGateway), sum(marked.Containers, marked.Gateway)))
	creditGateway(in, t, add)

	for _, p := range in.Ports {
		for _, a := range p.Addrs {
			add(SpoofGuard, spoofEndpoint, match{}.inPort(p.OFPort).ipSrc(host(a)).ethSrc(p.MAC), t.From[a])
			add(Forwarding, forwardingLocal, match{}.ipDst(host(a)), t.To[a])
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
		add(SpoofGuard, byLength(r.Prefix, rangeWay), m, t.OutOf[r.Prefix])
		add(Forwarding, byLength(r.Prefix, rangeWay), match{}.ipDst(r.Prefix), t.Into[r.Prefix])
	}
	for _, v := range in.VTEPs {
		add(in.source(v), tunnelSourceKnown, c.fromVTEP(v), vtep[v.Addr])
	}
	add(VNIDCheck, vnidCheckFrom0, match{}.reg(regSrcVNID, 0), t.FromVNID0)
	add(VNIDCheck, vnidCheckTo0, match{}.reg(regDstVNID, 0), t.OnlyToOf0)
	realm := map[uint32]Realm{}
	for _, s := range in.Subnets {
		realm[s.VNID] = s.Realm
	}
	for _, p := range in.Ports {
		realm[p.VNID] = p.Realm
	}
	for v, n := range t.VNIDs {
		priority, m := sameRealm(v, realm[v])
		add(VNIDCheck, priority, m, n)
	}
	out := make([]Count, len(flows))
	for i, f := range flows {
		out[i] = credit[f.key()]
	}
	return out
}

// inside is what came out of the tunnel by its port for what encrypts.
func (t Tally) inside(in Input) (n Count) {
	stage := map[netip.Addr]Stage{}
	for _, v := range in.VTEPs {
		stage[v.Addr] = in.source(v)
	}
	for _, r := range in.Routes {
		if stage[r.VTEP] == TunnelInside {
			n = sum(n, t.OutOf[r.Prefix])
		}
	}
	return n
}

// creditGateway is what is the gateway's alone of Credit.
func creditGateway(in Input, t Tally, add func(Stage, int, match, Count)) {
	endpoint, gateway := match{}.reg(regClass, classEndpoint), match{}.reg(regClass, classGateway)
	outside := endpoint.reg(regInternal, 0)
	own := map[netip.Prefix]bool{}
	var guarded Count
	for _, s := range in.Subnets {
		if g := s.Gateway; g.IsValid() {
			own[host(g)] = true
			add(SpoofGuard, spoofGateway, gateway.ipSrc(host(g)), t.FromGateway[host(g)])
			add(Forwarding, forwardingGateway, endpoint.ipDst(host(g)), t.ToGateway[host(g)])
		}
	}
	var others Count
	for p, n := range t.FromGateway {
		if !own[p] {
			others = sum(others, n)
		}
	}
	add(SpoofGuard, spoofGatewayElse, gateway, others)
	if in.VTEP.IsValid() {
		add(Forwarding, outwardVTEP, outside.ipDst(host(in.VTEP)), t.ToGateway[host(in.VTEP)])
	}
	for _, v := range in.VTEPs {
		if v.Addr == in.VTEP {
			add(Forwarding, outwardVTEP, outside.ipDst(host(in.VTEP)), Count{})
		}
		add(Forwarding, outwardHost, outside.ipDst(host(v.Addr)), t.ToGateway[host(v.Addr)])
	}
	for p, n := range t.ToGateway {
		if p.Bits() != 0 {
			guarded = sum(guarded, n)
		}
	}
	add(HostGuard, otherwise, match{}, guarded)
	for a, f := range map[netip.Addr]family{netip.IPv4Unspecified(): ipv4, netip.IPv6Unspecified(): ipv6} {
		add(Forwarding, outwardWorld, outside.proto(f.proto), t.ToGateway[netip.PrefixFrom(a, 0)])
	}
}

// creditGroups is what is of groups alone of Credit: copies are sent from there.
func creditGroups(in Input, t Tally, add func(Stage, int, match, Count)) {
	for _, g := range in.Groups {
		to := match{}.toGroup(g)
		in := to.reg(regClass, classTunnel)
		if g.Encrypted {
			in = in.reg(regSecure, 1)
		}
		add(Forwarding, forwardingGroup, in, t.InGroups[g.Key()])
		add(Forwarding, forwardingGroup, to.reg(regClass, classEndpoint), t.ToGroups[g.Key()])
	}
}

// creditSettled is what is of settled connections alone of Credit. Which addresses' flows they visit between conntrack and
// egress-policy nobody knows, nor those of rules which first packets meet: these count what comes to the switch. It returns all that
// was carried so, what of that the switch would have marked, and what were first packets.
func creditSettled(in Input, t Tally, add func(Stage, int, match, Count)) (all, marked Settled, begun Count) {
	for i, m := range settledKinds() {
		add(Commit, commitSettled, m, t.Settled[i].all())
	}
	c := compiler{in: objects{Input: in}}
	for i, m := range c.granted() {
		add(Commit, commitGranted, m, t.Settled[tallyBegun+i].all())
	}
	var edges Count
	for i, s := range t.Settled {
		all = all.and(s)
		switch {
		case i >= tallyErrors:
			continue // each visits one of two flows of commit, by who sends it
		case i >= tallyEdges:
			edges = sum(edges, s.all())
			continue
		case i >= tallyBegun:
			begun = sum(begun, s.all())
			add(Connection, connectionBegins, match{}.proto([]family{ipv4, ipv6}[i-tallyBegun].proto).ctState("+new-inv+trk").ctProto(protoTCP), s.all())
		}
		marked = marked.and(s)
	}
	add(Commit, otherwise, match{}, edges)
	add(Committed, otherwise, match{}, begun)
	add(Connection, otherwise, match{}, without(all.all(), begun))
	add(IngressPolicy, rulesJudged, match{}.reg(regTracked, 1).reg(regJudgeIngress, 0), without(all.all(), begun))
	counted := map[Stage]Count{}
	for _, r := range in.Policy.Rules {
		if r.Action == Accept {
			d := directionOf(r.Direction)
			add(d.count, countGoesOn, match{}.labelled(d, r.ID), without(t.Rules[r.ID], t.Begun[r.ID]))
			add(d.count, countBegins, match{}.reg(regBegins, 1).labelled(d, r.ID), t.Begun[r.ID])
			counted[d.count] = sum(counted[d.count], t.Rules[r.ID])
		}
	}
	for _, s := range []Stage{EgressCount, IngressCount} {
		add(s, otherwise, match{}, without(all.all(), counted[s]))
	}
	tunnel := match{}.reg(regOutPort, in.TunnelPort).reg(regSettled, 1)
	add(Output, outputEgress, tunnel.reg(regIngressSlot, 0), marked.Egress)
	add(Output, outputIngress, tunnel.reg(regEgressSlot, 0), marked.Ingress)
	add(Output, outputGateway, match{}.reg(regOutPort, in.GatewayPort).reg(regSettled, 1), marked.Gateway)
	add(Output, outputSettled, match{}.reg(regSettled, 1), marked.Containers)
	return all, marked, begun
}

// without is a less b, and none if that is more: the two were not read at one moment.
func without(a, b Count) Count {
	if b.Packets > a.Packets || b.Bytes > a.Bytes {
		return Count{}
	}
	return Count{a.Packets - b.Packets, a.Bytes - b.Bytes}
}

func total(counts func(func(Count) bool)) (t Count) {
	for c := range counts {
		t = sum(t, c)
	}
	return t
}

func sum(a, b Count) Count { return Count{a.Packets + b.Packets, a.Bytes + b.Bytes} }
