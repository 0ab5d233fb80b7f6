package pipeline

import "net/netip"

// forwardLocal sends to this host's endpoints, and nowhere else what came out of
// the tunnel: a packet crosses the underlay once.
func forwardLocal(c *compiler) {
	for _, p := range c.in.Ports {
		for _, a := range p.Addrs {
			c.add(Forwarding, 3000, endpointObject(p.Endpoint), match{}.ipDst(host(a)), toEndpoint(p)...)
		}
	}
	c.drop(Forwarding, 2900, DropTransit, match{}.reg(regClass, classTunnel))
	for _, p := range []string{"224.0.0.0/4", "255.255.255.255/32", "ff00::/8"} {
		c.drop(Forwarding, 2800, DropMulticast, match{}.ipDst(netip.MustParsePrefix(p)))
	}
	// The host's gateway port takes 127.0.0.1 for its own (published ports need that):
	// nobody else may send to it (RFC 1122, 3.2.1.3 (g); RFC 4291, 2.5.3).
	for _, p := range []string{"127.0.0.0/8", "::1/128"} {
		c.drop(Forwarding, 2800, DropLoopback, match{}.ipDst(netip.MustParsePrefix(p)))
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
			c.drop(Forwarding, byLength(s.Prefix, 0), DropShut, match{}.ipDst(s.Prefix))
			continue
		}
		c.add(Forwarding, byLength(s.Prefix, 0), subnetObject(s.Prefix), match{}.ipDst(s.Prefix), drop)
	}
	for _, r := range c.in.Routes {
		m, o, priority := match{}.ipDst(r.Prefix), routeObject(r.Prefix), byLength(r.Prefix, 1)
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
				c.drop(Forwarding, 3300, DropNotEncrypted, clear.ipDst(host(a)))
			}
		}
	}
	for _, r := range HostRanges {
		for _, s := range c.in.Subnets {
			if s.Encrypted && s.Prefix.Addr().Is4() == r.Addr().Is4() {
				c.drop(Forwarding, 3300, DropNotEncrypted, clear.ipSrc(r).andDst(s.Prefix))
			}
		}
		c.drop(Forwarding, 2760, DropNotEncrypted, secure.reg(regClass, classGateway).ipDst(r))
	}
	for _, r := range c.in.Routes {
		if !r.clear() {
			continue
		}
		m, o, priority := secure.ipDst(r.Prefix), routeObject(r.Prefix), byLength(r.Prefix, 2)
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
				c.add(Forwarding, 2700, subnetObject(s.Prefix), endpoint.ipDst(host(s.Gateway)), toHost...)
			}
		}
		for _, s := range c.outward() {
			for _, f := range []family{ipv4, ipv6} {
				c.add(s, 100, object{}, outside.proto(f.proto), c.toGateway()...)
			}
			for _, v := range c.in.VTEPs {
				c.add(s, 150, vtepObject(v.Addr), outside.ipDst(host(v.Addr)), append([]string{load(regHost, 1)}, toHost...)...)
			}
			if c.in.VTEP.IsValid() {
				c.add(s, 140, object{}, outside.ipDst(host(c.in.VTEP)), toHost...)
			}
		}
	}
	for _, m := range c.ofHosts(endpoint) {
		c.drop(Forwarding, 200, DropForgedTunnel, m)
	}
	for _, s := range c.outward() {
		c.drop(s, 0, DropNoRoute, match{})
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

// tunnels are the IP protocols in which an IP packet travels that a host may take out: IP in IP
// (RFC 2003, RFC 2473), GRE and MPLS.
var tunnels = []int{4, 41, protoGRE, 137}

const protoGRE = 47

// guardHostPorts keeps endpoints from speaking to hosts as hosts speak to each other. A host
// puts its own address in place of the sender's, so that another one takes VXLAN for its. Of
// fragments nobody sees the port here, not even of the first, and a tunnel's end may take out
// what it likes: neither goes to another host. To this one they may: here the sender's address
// stays, and it is nobody's VTEP.
func guardHostPorts(c *compiler) {
	for _, m := range c.ofHosts(match{}) {
		c.drop(HostGuard, 200, DropForgedTunnel, m)
	}
	for _, f := range []family{ipv4, ipv6} {
		if c.in.GossipPort != 0 {
			c.drop(HostGuard, 200, DropGossip, match{}.proto(f.udp).port(c.in.GossipPort))
			c.drop(HostGuard, 200, DropGossip, match{}.proto(f.tcp).port(c.in.GossipPort))
		}
		toOther := match{}.reg(regHost, 1).proto(f.proto)
		for _, p := range tunnels {
			c.drop(HostGuard, 150, DropHidden, toOther.ipProto(p))
		}
	}
	// IPv4 puts fragments together by protocol. Of IPv6 the first one says which it is, and may
	// say so behind other headers.
	for _, f := range []string{ipv4.udp, ipv6.proto} {
		c.drop(HostGuard, 150, DropHidden, match{}.reg(regHost, 1).proto(f).fragment())
	}
	c.pass(HostGuard)
}

// checkVNIDs lets a packet on if both ends are of one network, or of networks that are one, or one of them
// is privileged. Of the source there is the VNID, of the destination its realm's number: so a network has one flow
// here, however many it is one with.
func checkVNIDs(c *compiler) {
	next := goTo(VNIDCheck.next())
	c.add(VNIDCheck, 200, vnidObject(0), match{}.reg(regSrcVNID, 0), next)
	c.add(VNIDCheck, 190, vnidObject(0), match{}.reg(regDstVNID, 0), next)
	let := func(vnid uint32, r Realm) {
		if vnid != 0 {
			priority, m := sameRealm(vnid, r)
			c.add(VNIDCheck, priority, vnidObject(vnid), m, next)
		}
	}
	for _, s := range c.in.Subnets {
		let(s.VNID, s.Realm)
	}
	for _, p := range c.in.Ports {
		let(p.VNID, p.Realm)
	}
	c.drop(VNIDCheck, 0, DropOtherNetwork, match{})
}

// sameRealm is the flow for what a VNID that is not 0 sends: to its realm, or everywhere.
func sameRealm(vnid uint32, r Realm) (priority int, m match) {
	if to := r.Number(vnid); to != 0 {
		return 100, match{}.reg(regSrcVNID, vnid).reg(regDstVNID, to)
	}
	return 200, match{}.reg(regSrcVNID, vnid)
}

// emit sends the packet out. Into the tunnel it takes its source's VNID, which
// the receiving host checks against the range of its source and again against
// its destination.
func emit(c *compiler) {
	if c.in.TunnelPort != 0 {
		m := match{}.reg(regOutPort, c.in.TunnelPort)
		c.add(Output, 200, object{}, m, c.encapsulate()...)
	}
	c.drop(Output, 100, DropNoDestination, match{}.reg(regOutPort, 0))
	c.add(Output, 50, object{}, match{}, outputReg(regOutPort))
}

func (c *compiler) encapsulate() []string {
	if c.in.Tunnel == Metadata {
		return append(c.carryVNID(), output(c.in.TunnelPort))
	}
	return append(c.carryVNID(),
		"set_field:02:01:00:00:00:00->eth_dst", move(regVTEP.bits(32), "NXM_OF_ETH_DST[0..31]"),
		output(c.in.TunnelPort),
	)
}

// carryVNID has the packet carry its source's VNID in the tunnel, and no MAC of a container's.
func (c *compiler) carryVNID() []string {
	vnid := regSrcVNID.bits(24)
	if c.in.Tunnel == Metadata {
		return []string{setEthSrc(RouterMAC), setEthDst(RouterMAC), move(vnid, "NXM_NX_TUN_ID[0..23]")}
	}
	return []string{"set_field:02:00:00:00:00:00->eth_src", move(vnid, "NXM_OF_ETH_SRC[0..23]")}
}
