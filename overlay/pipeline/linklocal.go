package pipeline

import "net/netip"

// LinkLocalRanges are where addresses mean something on their own network only, so that
// two networks may have the same (RFC 3927; RFC 4291, 2.5.6). What has its source here
// goes to such an address of the same network, and nowhere else: no router passes it on.
var LinkLocalRanges = []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10")}

// linkLocalRange is the one that a link-local address is in.
func linkLocalRange(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return LinkLocalRanges[0]
	}
	return LinkLocalRanges[1]
}

// answerLinkLocal is answerARP and answerND for link-local addresses. No prefix stands
// for them: each that somebody has is answered for, to its own network.
func answerLinkLocal(c *compiler) {
	answer := func(o object, vnid uint32, a netip.Addr) {
		ask, reply := match{}.proto("arp").arpTPA(host(a)).arpOp(1), arpReply()
		if a.Is6() {
			ask, reply = match{}.solicits(host(a)), c.ndReply(flagSolicited|flagOverride)
		}
		c.add(ARPResponder, arpAnswer, o, ask.reg(regSrcVNID, vnid), reply)
	}
	for _, p := range c.in.Ports {
		for _, a := range p.LinkLocal {
			own := match{}.proto("arp").inPort(p.OFPort).arpTPA(host(a))
			if a.Is6() {
				own = match{}.inPort(p.OFPort).solicits(host(a))
			}
			c.add(ARPResponder, arpOwn, endpointObject(p.Endpoint), own, drop)
			answer(endpointObject(p.Endpoint), p.VNID, a)
		}
	}
	for _, n := range c.in.Neighbours {
		answer(vtepObject(n.VTEP), n.VNID, n.Addr)
	}
}

// guardNeighbours lets neighbours in by their link-local addresses, each from its own host
// and on its own network only.
func guardNeighbours(c *compiler) {
	for _, n := range c.in.Neighbours {
		if i, ok := c.index[n.VTEP]; ok {
			from := match{}.reg(regClass, classTunnel).reg(regVTEP, i).reg(regSrcVNID, n.VNID)
			c.add(SpoofGuard, spoofOfHost, vtepObject(n.VTEP), from.ipSrc(host(n.Addr)).andDst(linkLocalRange(n.Addr)), goTo(SpoofGuard.next()))
		}
	}
}

// forwardLinkLocal sends from link-local addresses to link-local addresses of the same network.
func forwardLinkLocal(c *compiler) {
	to := func(vnid uint32, a netip.Addr) match {
		return match{}.reg(regSrcVNID, vnid).ipSrc(linkLocalRange(a)).andDst(host(a))
	}
	for _, p := range c.in.Ports {
		for _, a := range p.LinkLocal {
			c.add(Forwarding, forwardingLocal, endpointObject(p.Endpoint), to(p.VNID, a), toEndpoint(p)...)
			for _, r := range LinkLocalRanges {
				c.drop(Forwarding, forwardingLinkLocal, DropLinkLocal, match{}.reg(regClass, classEndpoint).ipSrc(r))
			}
		}
	}
	for _, n := range c.in.Neighbours {
		if i, ok := c.index[n.VTEP]; ok && c.in.TunnelPort != 0 {
			c.add(Forwarding, forwardingNeighbour, vtepObject(n.VTEP), to(n.VNID, n.Addr).reg(regClass, classEndpoint),
				load(regDstVNID, n.Realm.Number(n.VNID)), load(regOutPort, c.in.TunnelPort), c.toVTEP(n.VTEP, i), goTo(VNIDCheck))
		}
	}
}
