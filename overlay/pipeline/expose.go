package pipeline

import (
	"fmt"
	"net/netip"
)

// The priorities of expose-in.
const (
	exposeInFragment = 210 // from this host's gateway: the first fragments wait for their ports
	exposeInPort     = 200 // to an exposed port
	exposeInError    = 190 // ICMP errors of such connections
	exposeInRest     = 180 // fragments behind the first
	exposeInOther    = 100 // from this host's gateway, to another port
)

// The priority of noted.
const notedEndpoint = 100

// The priorities of expose-back. Below them are those of what leaves: outwardHost and what follows.
const (
	exposeBackUntracked = 300 // dropped
	exposeBackForged    = 290 // dropped: from the tunnel, VXLAN or GRE
	exposeBackOut       = 280 // from the tunnel: another host's exposed port answers
	exposeBackExit      = 275 // from the tunnel: leaves by an egress address that is here
	exposeBackTransit   = 270 // from the tunnel, dropped: all else
	exposeBackHost      = 250 // an answer, to the host by which the connection came
	exposeBackGone      = 240 // dropped: that host is not there any more
)

// Exposed is a port of an endpoint, here or elsewhere, that the outside reaches by every host of the cluster. Whichever
// host a client speaks to puts the endpoint's address in the place of its own and leaves the client's as it is. So the
// answer has to go back by that host, which alone can undo this.
//
// It does without a word between hosts: the endpoint's host tracks such connections in a zone of its own, and notes with
// each by which VTEP it came.
type Exposed struct {
	Addr netip.Addr
	UDP  bool // else TCP
	Port uint16
	VNID uint32
}

// exposeZone is of connection tracking, for what comes from outside to exposed ports. In wholeZone nothing is ever
// noted: there connection tracking only puts fragments together, and reads their ports.
const (
	exposeZone = 0x6778
	wholeZone  = 0x6779
)

func (x Exposed) family() family { return familyOf(x.Addr) }

// proto is x's protocol as a match has it.
func (x Exposed) proto(m match) match {
	if f := x.family(); x.UDP {
		return m.proto(f.udp)
	}
	return m.proto(x.family().tcp)
}

func (x Exposed) toPort(m match) match {
	return x.proto(m).with(fieldDst, "%s=%s", x.family().dst, prefixText(host(x.Addr))).port(x.Port)
}

func (x Exposed) fromPort(m match) match {
	return x.proto(m).with(fieldSrc, "%s=%s", x.family().src, prefixText(host(x.Addr))).with(fieldPortSrc, "tp_src=%d", x.Port)
}

// No fragment has a port in Open vSwitch, not even the first. Connection tracking puts a datagram together. Then the
// kernel's datapath goes on with the whole, and the userspace one with its fragments, of which the first has what
// connection tracking says of the port. The others wait for it at the next look, or are nothing without it.

// wholeToPort matches a first fragment of what is sent to x.
func (x Exposed) wholeToPort(m match, state string) match {
	return m.ipDst(host(x.Addr)).fragment().ctState(state).ctProto(x.number()).with(fieldCTPortDst, "ct_tp_dst=%d", x.Port)
}

// laterToPort matches those behind it.
func (x Exposed) laterToPort(state string) match {
	return match{}.ipDst(host(x.Addr)).with(fieldFrag, "nw_frag=later").ctState(state).ctProto(x.number())
}

// wholeFromPort matches what x sent as fragments, and connection tracking never noted.
func (x Exposed) wholeFromPort(m match) match {
	return m.ipSrc(host(x.Addr)).tracked().ctProto(x.number()).with(fieldCTPortSrc, "ct_tp_src=%d", x.Port)
}

func (x Exposed) number() uint8 {
	if x.UDP {
		return 17
	}
	return 6
}

// errors are the types of ICMP messages that tell the sender of a packet what became of it (RFC 792; RFC 4443, 3).
func (f family) errors() []int {
	if f == ipv4 {
		return []int{3, 11, 12}
	}
	return []int{1, 2, 3, 4}
}

// icmpError matches one of a family, from or to an address.
func (m match) icmpError(a netip.Addr, kind int, source bool) match {
	f := familyOf(a)
	m = m.proto(f.icmp).with(fieldPortDst, "icmp_type=%d", kind)
	if source {
		return m.with(fieldSrc, "%s=%s", f.src, prefixText(host(a)))
	}
	return m.with(fieldDst, "%s=%s", f.dst, prefixText(host(a)))
}

// exposedHere calls f for each port of this host's endpoints that is exposed.
func (c *compiler) exposedHere(f func(x Exposed, p Port)) {
	for _, x := range c.in.Exposed {
		for _, p := range c.in.Ports {
			for _, a := range p.Addrs {
				if a == x.Addr && !p.Internal {
					f(x, p)
				}
			}
		}
	}
}

// exposeIn lets in what the outside sends to exposed ports of this host's endpoints, by this host or by another one:
// of the latter nothing else, and nothing that claims to be of the cluster.
func exposeIn(c *compiler) {
	tunnel, gateway := match{}.reg(regClass, classTunnel), match{}.reg(regClass, classGateway)
	look := fmt.Sprintf("ct(table=%d,zone=%d)", ExposeIn, exposeZone)
	c.exposedHere(func(x Exposed, p Port) {
		o, here, f := endpointObject(p.Endpoint), host(x.Addr), x.family()
		accept := func(m match) { c.add(SpoofGuard, spoofExposed, o, m, load(regOutside, 1), goTo(SpoofGuard.next())) }
		accept(x.toPort(tunnel.reg(regSrcVNID, 0)))
		accept(tunnel.reg(regSrcVNID, 0).ipDst(here).fragment()) // ExposeIn sees their port
		for _, kind := range f.errors() {
			accept(tunnel.reg(regSrcVNID, 0).icmpError(x.Addr, kind, false))
		}
		c.add(Forwarding, forwardingExposed, o, tunnel.reg(regOutside, 1).ipDst(here), look)
		c.add(Forwarding, forwardingExposed, o, x.toPort(gateway), look)
		c.add(Forwarding, forwardingExposed, o, gateway.ipDst(here).fragment(), look)

		// The VTEP's index is 0 of what this host's gateway sent.
		note := fmt.Sprintf("ct(commit,table=%d,zone=%d,exec(%s))", Noted, exposeZone, move(regVTEP.bits(32), "NXM_NX_CT_MARK[]"))
		to := toEndpoint(p)
		c.noted(p, x.Addr)
		// Of what this host's gateway sends in fragments to other ports the first one must not pass where the others wait.
		begins := "-rpl-inv+trk"
		if !x.UDP {
			begins = "+new-rpl-inv+trk"
		}
		c.add(ExposeIn, exposeInFragment, o, gateway.ipDst(here).fragment().ctState(begins).ctProto(x.number()), note)
		if x.UDP {
			// A client that speaks to several hosts from one port is answered by the one that it spoke to last.
			c.add(ExposeIn, exposeInPort, o, x.toPort(match{}).ctState("-inv+trk"), note)
			c.add(ExposeIn, exposeInPort, o, x.wholeToPort(match{}, "-rpl-inv+trk"), note)
			c.add(ExposeIn, exposeInRest, o, x.laterToPort("-rpl-inv+trk"), note)
		} else {
			c.add(ExposeIn, exposeInPort, o, x.toPort(match{}).ctState("+new-inv+trk"), note)
			c.add(ExposeIn, exposeInPort, o, x.toPort(match{}).ctState("-new-inv+trk"), to...)
			c.add(ExposeIn, exposeInPort, o, x.wholeToPort(match{}, "+new-rpl-inv+trk"), note)
			c.add(ExposeIn, exposeInPort, o, x.wholeToPort(match{}, "-new-rpl-inv+trk"), to...)
			c.add(ExposeIn, exposeInRest, o, x.laterToPort("+new-rpl-inv+trk"), note)
			c.add(ExposeIn, exposeInRest, o, x.laterToPort("-new-rpl-inv+trk"), to...)
		}
		for _, kind := range f.errors() {
			c.add(ExposeIn, exposeInError, o, match{}.icmpError(x.Addr, kind, false).ctState("+rel-inv+trk"), to...)
		}
		c.add(ExposeIn, exposeInOther, o, gateway.ipDst(here).ctState("-inv+trk"), to...)
	})
	if len(c.in.Exposed) == 0 {
		return
	}
	c.drop(ExposeIn, otherwise, DropNotExposed, match{})
	c.notOfCluster(SpoofGuard, spoofNotOutside, DropTunnelSource, func(p netip.Prefix) match { return tunnel.ipSrc(p) })
}

// noted leads what comes from outside on to an endpoint, once connection tracking has noted how it came. What policies are
// to see of the connection is there only behind a table of that look's own: without one Open vSwitch forgets it.
func (c *compiler) noted(p Port, a netip.Addr) {
	c.add(Noted, notedEndpoint, endpointObject(p.Endpoint), match{}.ipDst(host(a)).ctState("+trk"), toEndpoint(p)...)
	c.drop(Noted, otherwise, DropNotExposed, match{})
}

// notOfCluster drops what has an address that nobody outside has.
func (c *compiler) notOfCluster(s Stage, priority int, why Reason, with func(netip.Prefix) match) {
	for _, p := range c.ofCluster() {
		c.drop(s, priority, why, with(p))
	}
	for _, p := range notOutside {
		c.drop(s, priority, why, with(p))
	}
}

// exposeBack leads the answers of exposed ports to the host by which the client came, before anything else could lead
// them out here. All else goes on as it would.
func exposeBack(c *compiler) {
	if len(c.in.Exposed) == 0 {
		return
	}
	look := fmt.Sprintf("ct(table=%d,zone=%d)", ExposeBack, exposeZone)
	c.exposedHere(func(x Exposed, p Port) {
		o, endpoint := endpointObject(p.Endpoint), match{}.reg(regClass, classEndpoint)
		c.add(Forwarding, forwardingExposeBack, o, x.fromPort(endpoint), look)
		c.add(Forwarding, forwardingExposeBack, o, endpoint.ipSrc(host(x.Addr)).fragment(), look)
		for _, kind := range x.family().errors() {
			c.add(Forwarding, forwardingExposeBack, o, endpoint.icmpError(x.Addr, kind, true), look)
		}
	})
	c.drop(ExposeBack, exposeBackUntracked, DropInvalid, match{}.ctState("-trk"))
	for _, f := range []family{ipv4, ipv6} {
		for _, v := range c.in.VTEPs {
			if c.in.TunnelPort != 0 {
				c.add(ExposeBack, exposeBackHost, vtepObject(v.Addr), cameBy(f, v.Index), load(regDstVNID, 0), load(regOutPort, c.in.TunnelPort), c.toVTEP(v.Addr, v.Index), goTo(VNIDCheck))
			}
		}
		if c.in.GatewayPort != 0 {
			c.add(ExposeBack, exposeBackHost, object{}, cameBy(f, 0), c.toGateway()...)
		}
		// The host by which it came is not there any more.
		c.drop(ExposeBack, exposeBackGone, DropNoRoute, match{}.proto(f.proto).ctState("+rpl+trk"))
	}
}

// cameBy matches answers of connections that came by a VTEP.
func cameBy(f family, index uint32) match {
	return match{}.proto(f.proto).ctState("+rpl-inv+trk").with(fieldCTMark, "ct_mark=%s", hexText(index))
}

// exposeOut leads out, at the host by which the client came, what other hosts' exposed ports answer. NAT knows the
// connection.
func exposeOut(c *compiler) {
	if len(c.in.Exposed) == 0 || c.in.GatewayPort == 0 {
		return
	}
	tunnel := match{}.reg(regClass, classTunnel)
	look := fmt.Sprintf("ct(table=%d,zone=%d)", ExposeBack, wholeZone)
	for _, x := range c.in.Exposed {
		o, m := vnidObject(x.VNID), tunnel.reg(regSrcVNID, x.VNID)
		c.add(Forwarding, forwardingExposeOut, o, x.fromPort(m), c.toGateway()...)
		c.add(Forwarding, forwardingExposeOut, o, m.ipSrc(host(x.Addr)).fragment(), look)
		c.add(ExposeBack, exposeBackOut, o, x.wholeFromPort(m), c.toGateway()...)
		c.add(ExposeBack, exposeBackOut, o, m.ipSrc(host(x.Addr)).with(fieldFrag, "nw_frag=later").tracked().ctProto(x.number()), c.toGateway()...)
		for _, kind := range x.family().errors() {
			c.add(Forwarding, forwardingExposeOut, o, m.icmpError(x.Addr, kind, true), c.toGateway()...)
		}
	}
	for _, f := range []family{ipv4, ipv6} {
		if c.in.VXLANPort != 0 {
			c.drop(ExposeBack, exposeBackForged, DropForgedTunnel, tunnel.proto(f.proto).tracked().ctProto(17).with(fieldCTPortDst, "ct_tp_dst=%d", c.in.VXLANPort))
		}
		if c.in.GRE {
			c.drop(ExposeBack, exposeBackForged, DropForgedTunnel, tunnel.proto(f.proto).ipProto(protoGRE))
		}
	}
	c.drop(ExposeBack, exposeBackTransit, DropTransit, tunnel)
	c.intoOutside(tunnel)
}

// intoOutside drops what other hosts send to the outside by this one, and is for the cluster, or could not leave their own.
func (c *compiler) intoOutside(tunnel match) {
	c.notOfCluster(Forwarding, forwardingNotOutside, DropTransit, func(p netip.Prefix) match { return tunnel.ipDst(p) })
	for _, p := range LinkLocalRanges { // a neighbour of the sender's, or of nobody; not what this host has there, as a cloud's metadata
		c.drop(Forwarding, forwardingNotOutside, DropTransit, tunnel.ipDst(p))
	}
	for _, m := range c.ofHosts(tunnel) {
		c.drop(Forwarding, forwardingNotForged, DropForgedTunnel, m)
	}
}
