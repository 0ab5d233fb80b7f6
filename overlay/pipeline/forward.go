package pipeline

import "net/netip"

// The priorities of forwarding.
const (
	forwardingUnheardIn = 3400 // dropped: from a host that may not have heard who has the address now (unheard.go)
	forwardingClear     = 3300 // dropped: in the clear, to an endpoint of an encrypted network
	forwardingExitError = 3250 // an ICMP error of an egress address's holder, to who leaves by it
	forwardingHosts     = 3200 // other hosts, by their own addresses, to endpoints here, and answers to this one
	forwardingGroupRest = 3110 // dropped: fragments of what rules may drop, to a group
	forwardingGroup     = 3100 // to a multicast group, or to a broadcast address
	forwardingProbe     = 3100 // agents' probes
	forwardingExposed   = 3060 // from outside to an exposed port here
	forwardingExitIn    = 3050 // from outside, by this host, to who leaves by another one
	forwardingLocal     = 3000 // to an endpoint here

	// From the tunnel, and for no endpoint here.
	forwardingNotOutside = 2950 // dropped: as to the outside, to an address that is the cluster's or nobody's
	forwardingNotForged  = 2940 // dropped: as to the outside, and VXLAN or GRE
	forwardingExposeOut  = 2915 // another host's exposed port answers who came in by this one
	forwardingExitOut    = 2910 // another host's endpoint leaves by an egress address that is here
	forwardingTransit    = 2900 // dropped: all else

	forwardingNobody     = 2800 // dropped: groups, loopback addresses, an endpoint to hosts' own addresses
	forwardingHostSecure = 2770 // this host's answer to another one, of an encrypted network
	forwardingHostClear  = 2760 // dropped: the same, to a host that does not encrypt
	forwardingHost       = 2750 // this host's answer to another one
	forwardingNeighbour  = 2750 // to a link-local address of the same network, on another host
	forwardingGateway    = 2700 // to a gateway address
	forwardingUnheardOut = 2650 // dropped: to a host that may not have heard who has the address now (unheard.go)
	forwardingLinkLocal  = 2600 // dropped: from a link-local address to anything else
	// Here are the ranges of other hosts and the subnets: byLength.

	// From endpoints to the outside. Those from outwardHost on are in expose-back as well, if there are exposed ports.
	forwardingForged     = 200 // dropped: VXLAN or GRE
	forwardingExposeBack = 170 // what may be an exposed port's answer
	outwardHost          = 150 // to another host of the cluster
	outwardVTEP          = 140 // to this host, by its VTEP
	outwardOwn           = 130 // to this host, by another address of its
	outwardExit          = 120 // by an egress address
	outwardWorld         = 100 // by this host; what is in no network with an outside is dropped
)

// forwardLocal sends to this host's endpoints, and nowhere else what came out of
// the tunnel: a packet crosses the underlay once.
func forwardLocal(c *compiler) {
	for _, p := range c.in.Ports {
		for _, a := range p.Addrs {
			c.add(Forwarding, forwardingLocal, endpointObject(p.Endpoint), match{}.ipDst(host(a)), toEndpoint(p)...)
		}
	}
	c.drop(Forwarding, forwardingTransit, DropTransit, match{}.reg(regClass, classTunnel))
	for _, p := range []string{"224.0.0.0/4", "255.255.255.255/32", "ff00::/8"} {
		c.drop(Forwarding, forwardingNobody, DropMulticast, match{}.ipDst(netip.MustParsePrefix(p)))
	}
	// The host's gateway port takes 127.0.0.1 for its own (published ports need that):
	// nobody else may send to it (RFC 1122, 3.2.1.3 (g); RFC 4291, 2.5.3).
	for _, p := range []string{"127.0.0.0/8", "::1/128"} {
		c.drop(Forwarding, forwardingNobody, DropLoopback, match{}.ipDst(netip.MustParsePrefix(p)))
	}
}

// toEndpoint is the way to an endpoint of this host.
func toEndpoint(p Port) []string {
	return []string{load(regDstVNID, p.Realm.Number(p.VNID)), load(regOutPort, p.OFPort), setEthSrc(RouterMAC), setEthDst(p.MAC), goTo(VNIDCheck)}
}

// forwardRanges sends to other hosts by the longest range; what is within a
// subnet and in no range of another host is dropped, and counted with the subnet
// or the range.
func forwardRanges(c *compiler) {
	for _, s := range c.in.Subnets {
		if s.Shut {
			c.drop(Forwarding, byLength(s.Prefix, rangeElse), DropShut, match{}.ipDst(s.Prefix))
			continue
		}
		c.add(Forwarding, byLength(s.Prefix, rangeElse), subnetObject(s.Prefix), match{}.ipDst(s.Prefix), drop)
	}
	for _, r := range c.in.Routes {
		m, o, priority := match{}.ipDst(r.Prefix), routeObject(r.Prefix), byLength(r.Prefix, rangeWay)
		if i, ok := c.index[r.VTEP]; ok && c.in.TunnelPort != 0 {
			c.add(Forwarding, priority, o, m, load(regDstVNID, r.Realm.Number(r.VNID)), load(regOutPort, c.in.TunnelPort),
				c.toVTEP(r.VTEP, i), goTo(VNIDCheck))
			continue
		}
		c.add(Forwarding, priority, o, m, drop)
	}
}

// forwardEncrypted has what is of an encrypted network leave encrypted or not at all, also for a range of a network
// that is not, and takes nothing else from other hosts for it.
func forwardEncrypted(c *compiler) {
	if len(c.in.Encrypted) == 0 {
		return
	}
	secure, clear := match{}.reg(regSecure, 1), match{}.reg(regClass, classTunnel).reg(regSecure, 0)
	for _, p := range c.in.Ports {
		for _, a := range p.Addrs {
			if p.Encrypted {
				c.drop(Forwarding, forwardingClear, DropNotEncrypted, clear.ipDst(host(a)))
			}
		}
	}
	for _, r := range HostRanges {
		for _, s := range c.in.Subnets {
			if s.Encrypted && s.Prefix.Addr().Is4() == r.Addr().Is4() {
				c.drop(Forwarding, forwardingClear, DropNotEncrypted, clear.ipSrc(r).andDst(s.Prefix))
			}
		}
		c.drop(Forwarding, forwardingHostClear, DropNotEncrypted, secure.reg(regClass, classGateway).ipDst(r))
	}
	for _, r := range c.in.Routes {
		if !r.clear() {
			continue
		}
		m, o, priority := secure.ipDst(r.Prefix), routeObject(r.Prefix), byLength(r.Prefix, rangeSecure)
		if i, ok := c.index[r.Secure]; ok && c.in.TunnelPort != 0 {
			c.add(Forwarding, priority, o, m, load(regDstVNID, r.Realm.Number(r.VNID)), load(regOutPort, c.in.TunnelPort), c.toVTEP(r.Secure, i), goTo(VNIDCheck))
			continue
		}
		c.drop(Forwarding, priority, DropNotEncrypted, m)
	}
}

// toVTEP keeps the tunnel's destination until the output stage.
func (c *compiler) toVTEP(a netip.Addr, index uint32) string {
	if c.in.Tunnel == HeaderBits {
		return load(regVTEP, index)
	}
	return setTunDst(a)
}

// forwardOutside sends to the gateway what is for the host's own gateway
// addresses or for the world outside. Only endpoints get there: what the gateway
// sent is not sent back to it, and internal networks have no outside. What is for
// a host of the cluster is guarded.
func forwardOutside(c *compiler) {
	endpoint := match{}.reg(regClass, classEndpoint)
	outside := endpoint.reg(regInternal, 0)
	if c.in.GatewayPort != 0 {
		toHost := c.toGatewayBy(HostGuard)
		for _, s := range c.in.Subnets {
			if s.Gateway.IsValid() {
				c.add(Forwarding, forwardingGateway, subnetObject(s.Prefix), endpoint.ipDst(host(s.Gateway)), toHost...)
			}
		}
		for _, s := range c.outward() {
			for _, f := range []family{ipv4, ipv6} {
				c.add(s, outwardWorld, object{}, outside.proto(f.proto), c.toGateway()...)
			}
			for _, v := range c.in.VTEPs {
				c.add(s, outwardHost, vtepObject(v.Addr), outside.ipDst(host(v.Addr)), append([]string{load(regHost, 1)}, toHost...)...)
			}
			if c.in.VTEP.IsValid() {
				c.add(s, outwardVTEP, object{}, outside.ipDst(host(c.in.VTEP)), toHost...)
			}
		}
	}
	for _, m := range c.ofHosts(endpoint) {
		c.drop(Forwarding, forwardingForged, DropForgedTunnel, m)
	}
	for _, s := range c.outward() {
		c.drop(s, otherwise, DropNoRoute, match{})
	}
}

// ofHosts are the packets in which hosts wrap what containers send.
func (c *compiler) ofHosts(m match) (list []match) {
	for _, f := range []family{ipv4, ipv6} {
		if c.in.VXLANPort != 0 {
			list = append(list, m.proto(f.udp).port(c.in.VXLANPort))
		}
		if c.in.GRE {
			list = append(list, m.proto(f.proto).ipProto(protoGRE))
		}
	}
	return list
}

// outward are the stages at which what endpoints send to the outside is led there.
func (c *compiler) outward() []Stage {
	if len(c.in.Exposed) > 0 {
		return []Stage{Forwarding, ExposeBack}
	}
	return []Stage{Forwarding}
}
