package pipeline

import (
	"fmt"
	"net"
	"net/netip"
)

// classify says where a packet came from. What is on no known port is an
// endpoint's until the spoof guard has looked.
func classify(c *compiler) {
	c.drop(Classify, 200, DropVLAN, match{}.vlanTagged())
	if c.in.TunnelPort != 0 {
		c.add(Classify, 100, object{}, match{}.inPort(c.in.TunnelPort), load(regClass, classTunnel), goTo(TunnelSource))
	}
	if c.in.InsidePort != 0 {
		c.add(Classify, 100, object{}, match{}.inPort(c.in.InsidePort), load(regClass, classTunnel), goTo(TunnelInside))
		c.add(TunnelInside, 0, object{}, match{}, goTo(TunnelSource)) // which drops and counts it
	}
	if c.in.GatewayPort != 0 {
		c.add(Classify, 100, object{}, match{}.inPort(c.in.GatewayPort), load(regClass, classGateway), goTo(SpoofGuard))
	}
	c.add(Classify, 0, object{}, match{}, load(regClass, classEndpoint), goTo(SpoofGuard))
}

// tunnelSource lets in what known VTEPs sent and loads the VNID it carries.
func tunnelSource(c *compiler) {
	for _, v := range c.in.VTEPs {
		vnid := "NXM_NX_TUN_ID[0..23]"
		if c.in.Tunnel == HeaderBits {
			vnid = "NXM_OF_ETH_SRC[0..23]"
		}
		act := []string{load(regVTEP, v.Index), move(vnid, regSrcVNID.bits(24))}
		if v.Secure {
			act = append(act, load(regSecure, 1))
		}
		c.add(c.in.source(v), 100, vtepObject(v.Addr), c.fromVTEP(v), append(act, goTo(SpoofGuard))...)
	}
	c.drop(TunnelSource, 0, DropUnknownVTEP, match{})
}

// source is the stage that lets in what a VTEP sent. Those of two families are not looked for in one: Open vSwitch has a packet's
// flow in the datapath look at all that a stage looks at, and the kernel refuses a flow (EINVAL) that looks at a tunnel's addresses
// of IPv4 and of IPv6. Each packet of such a flow would go through ovs-vswitchd.
func (in Input) source(v VTEP) Stage {
	if v.Secure && in.InsidePort != 0 {
		return TunnelInside
	}
	return TunnelSource
}

// fromVTEP matches what a VTEP sent. Behind the source's first byte may be a Hint.
func (c *compiler) fromVTEP(v VTEP) match {
	if c.in.Tunnel == HeaderBits {
		return match{}.ethSrcMask("02:00:00:00:00:00", "ff:00:00:00:00:00").ethDst(vtepMAC(v.Index))
	}
	return match{}.tunSrc(v.Addr)
}

// vtepMAC stands for a VTEP in header bits.
func vtepMAC(index uint32) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0x01, byte(index >> 24), byte(index >> 16), byte(index >> 8), byte(index)}
}

// guardTunnel lets a tunnel packet on only if its source is in a range of the
// VTEP it came from, with that range's VNID. The longest range decides: one that
// lies within another VTEP's is that other one's no more. So no host, and no
// container that learnt to write tunnel packets, can speak for another host's.
func guardTunnel(c *compiler) {
	tunnel := match{}.reg(regClass, classTunnel)
	for _, r := range c.in.Routes {
		src := tunnel.ipSrc(r.Prefix)
		from := []netip.Addr{r.VTEP}
		if r.clear() { // what it sends to an encrypted network comes from there
			from = append(from, r.Secure)
		}
		for _, vtep := range from {
			if i, ok := c.index[vtep]; ok {
				c.add(SpoofGuard, byLength(r.Prefix, 1), routeObject(r.Prefix),
					src.reg(regVTEP, i).reg(regSrcVNID, r.VNID), goTo(SpoofGuard.next()))
			}
		}
		c.add(SpoofGuard, byLength(r.Prefix, 0), routeObject(r.Prefix), src, drop)
	}
	c.drop(SpoofGuard, 400, DropTunnelSource, tunnel)
}

// guardGateway lets through what the host sends or forwards, as VNID 0, but
// for packets that claim to come from a container: the host routes none, so
// they were forged outside.
func guardGateway(c *compiler) {
	if c.in.GatewayPort == 0 {
		return
	}
	gateway := match{}.reg(regClass, classGateway)
	for _, s := range c.in.Subnets {
		if s.Gateway.IsValid() {
			c.add(SpoofGuard, 220, subnetObject(s.Prefix), gateway.ipSrc(host(s.Gateway)), s.secured(goTo(SpoofGuard.next()))...)
		}
		c.add(SpoofGuard, 210, subnetObject(s.Prefix), gateway.ipSrc(s.Prefix), drop)
	}
	c.add(SpoofGuard, 200, object{}, gateway, goTo(SpoofGuard.next()))
}

// secured are actions, and before them what says that the packet is of the subnet's network, if that is encrypted.
func (s Subnet) secured(act ...string) []string {
	if s.Encrypted {
		return append([]string{load(regSecure, 1)}, act...)
	}
	return act
}

// guardEndpoints ties each endpoint to its port, MAC and addresses, in IP and
// ARP headers, and loads its VNID. What else comes from its port is counted as
// its own.
//
// With its IPv6 link-local address, which is made of the MAC, an endpoint may ask for
// its neighbours, as hosts do to see whether one that they know is still there. No
// router, no listener and no second holder of an address is to be found in this way:
// those messages end here, and an address probe that nobody answers has succeeded. From
// link-local addresses that it was given (Port.LinkLocal) it may speak to others.
func guardEndpoints(c *compiler) {
	for _, p := range c.in.Ports {
		o, port := endpointObject(p.Endpoint), match{}.inPort(p.OFPort)
		accept := func(m match) {
			c.add(SpoofGuard, 300, o, m.ethSrc(p.MAC), p.accepted(SpoofGuard.next())...)
		}
		for _, a := range p.Addrs {
			accept(port.ipSrc(host(a)))
			if a.Is4() {
				accept(port.proto("arp").arpSPA(a).arpSHA(p.MAC))
				// An address probe (RFC 5227) has no sender address.
				accept(port.proto("arp").arpSPA(netip.IPv4Unspecified()).arpSHA(p.MAC))
			} else {
				accept(port.neighbour(neighbourSolicitation).with(fieldSrc, "ipv6_src=%s", LinkLocal(p.MAC)))
			}
		}
		for _, a := range p.LinkLocal {
			accept(port.ipSrc(host(a)).andDst(linkLocalRange(a)))
			if a.Is4() {
				accept(port.proto("arp").arpSPA(a).arpSHA(p.MAC))
			} else {
				accept(port.neighbour(neighbourSolicitation).with(fieldSrc, "ipv6_src=%s", addrText(a)))
			}
			if p.Multicast && a.Is6() {
				accept(port.ipSrc(host(a)).andDst(groups6))
			}
		}
		c.add(SpoofGuard, 100, o, port, drop)
	}
	endpoint := match{}.reg(regClass, classEndpoint)
	c.drop(SpoofGuard, 150, DropLinkLocal, endpoint.ipSrc(netip.MustParsePrefix("fe80::/10")))
	c.drop(SpoofGuard, 150, DropLinkLocal, endpoint.ipSrc(host(netip.IPv6Unspecified())))
	c.drop(SpoofGuard, 0, DropUnknownPort, match{})
}

// answerARP answers requests for any address of a prefix that the asker could
// reach, with the router's MAC. A question about the asker's own address (RFC
// 5227 probe, or announcement) gets no answer, or the asker would believe that
// somebody else has it.
func answerARP(c *compiler) {
	arp := match{}.proto("arp")
	for _, p := range c.in.Ports {
		for _, a := range p.Addrs {
			if a.Is4() {
				c.add(ARPResponder, 300, endpointObject(p.Endpoint), arp.inPort(p.OFPort).arpTPA(host(a)), drop)
			}
		}
	}
	for _, s := range c.in.Subnets {
		if !s.Prefix.Addr().Is4() {
			continue
		}
		o, ask := subnetObject(s.Prefix), arp.arpTPA(s.Prefix).arpOp(1)
		if c.in.GatewayPort != 0 && s.Gateway.IsValid() {
			c.add(ARPResponder, 300, o, arp.inPort(c.in.GatewayPort).arpTPA(host(s.Gateway)), drop)
		}
		if s.VNID == 0 {
			c.add(ARPResponder, 200, o, ask, arpReply())
			continue
		}
		c.add(ARPResponder, 200, o, ask.reg(regSrcVNID, s.VNID), arpReply())
		c.add(ARPResponder, 200, o, ask.reg(regSrcVNID, 0), arpReply())
	}
	c.drop(ARPResponder, 100, DropARP, arp)
	c.pass(ARPResponder)
}

// Messages of IPv6 neighbour discovery (RFC 4861, 4).
const (
	routerSolicitation     = 133
	routerAdvertisement    = 134
	neighbourSolicitation  = 135
	neighbourAdvertisement = 136
	redirect               = 137
)

// Flags of a neighbour advertisement (RFC 4861, 4.4).
const (
	flagRouter    = 1 << 31
	flagSolicited = 1 << 30
	flagOverride  = 1 << 29
)

// answerND is answerARP for IPv6. All other messages of neighbour discovery end here,
// whoever sends them: a container is nobody's router and advertises no address.
func answerND(c *compiler) {
	for _, message := range []int{routerSolicitation, routerAdvertisement, neighbourSolicitation, neighbourAdvertisement, redirect} {
		c.drop(ARPResponder, 100, DropND, match{}.neighbour(message))
	}
	c.drop(ARPResponder, 400, DropND, match{}.reg(regClass, classTunnel).neighbour(neighbourSolicitation))
	for _, p := range c.in.Ports {
		for _, a := range p.Addrs {
			if a.Is6() {
				c.add(ARPResponder, 300, endpointObject(p.Endpoint), match{}.inPort(p.OFPort).solicits(host(a)), drop)
			}
		}
	}
	for _, s := range c.in.Subnets {
		if !s.Prefix.Addr().Is6() {
			continue
		}
		o := subnetObject(s.Prefix)
		answer := func(priority int, p netip.Prefix, reply string) {
			ask := match{}.solicits(p)
			if s.VNID == 0 {
				c.add(ARPResponder, priority, o, ask, reply)
				return
			}
			c.add(ARPResponder, priority, o, ask.reg(regSrcVNID, s.VNID), reply)
			c.add(ARPResponder, priority, o, ask.reg(regSrcVNID, 0), reply)
		}
		if c.in.GatewayPort != 0 && s.Gateway.IsValid() {
			c.add(ARPResponder, 300, o, match{}.inPort(c.in.GatewayPort).solicits(host(s.Gateway)), drop)
		}
		if s.Gateway.IsValid() && c.in.Tunnel != Metadata {
			answer(210, host(s.Gateway), c.ndReply(flagRouter|flagSolicited|flagOverride))
		}
		answer(200, s.Prefix, c.ndReply(flagSolicited|flagOverride))
	}
	if c.in.Tunnel != Metadata {
		c.add(NDReply, 100, object{}, match{}.neighbour(neighbourAdvertisement).with(fieldICMPCode, "icmp_code=0"),
			"set_field:"+RouterMAC.String()+"->nd_tll", "IN_PORT")
	}
	c.pass(NDReply)
}

// ndReply answers a neighbour solicitation, with the flags if they can be written.
func (c *compiler) ndReply(flags uint32) string {
	if c.in.Tunnel == Metadata { // the kernel's datapath
		return askBack()
	}
	return advertise(flags)
}

// askBack is what the kernel's datapath has for an answer, where Open vSwitch refuses
// to write an advertisement's flags and option type (OFPBAC_BAD_SET_ARGUMENT; its kernel
// module has no OVS_KEY_ATTR_ND_EXTENSIONS). It turns the solicitation round: the
// neighbour seems to ask for the asker, with its own link-layer address, which the
// asker notes as it would any solicitor's (RFC 4861, 7.2.3), and then sends what waited
// for it. The asker's answer nobody needs.
func askBack() string {
	return actions(
		move("NXM_OF_ETH_SRC[]", "NXM_OF_ETH_DST[]"), setEthSrc(RouterMAC),
		move("NXM_NX_IPV6_SRC[]", "NXM_NX_IPV6_DST[]"), move("NXM_NX_ND_TARGET[]", "NXM_NX_IPV6_SRC[]"),
		move("NXM_NX_IPV6_DST[]", "NXM_NX_ND_TARGET[]"), "set_field:"+RouterMAC.String()+"->nd_sll", "IN_PORT")
}

// advertise turns a solicitation into its advertisement (RFC 4861, 7.2.4). It makes the
// source link-layer option (1) the target's (2), which every solicitation but an
// address probe has. The address in it the switch lets nobody write before the packet
// is an advertisement: that is the next table's.
func advertise(flags uint32) string {
	return actions(
		move("NXM_OF_ETH_SRC[]", "NXM_OF_ETH_DST[]"), setEthSrc(RouterMAC),
		move("NXM_NX_IPV6_SRC[]", "NXM_NX_IPV6_DST[]"), move("NXM_NX_ND_TARGET[]", "NXM_NX_IPV6_SRC[]"),
		fmt.Sprintf("set_field:%d->icmpv6_type", neighbourAdvertisement),
		fmt.Sprintf("set_field:%d->nd_reserved", flags), "set_field:2->nd_options_type", goTo(NDReply))
}

// LinkLocal is the link-local address of an interface with that MAC (RFC 4291,
// appendix A), as containers' kernels make it.
func LinkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}

// arpReply turns a request into its answer (RFC 826) and sends it back.
func arpReply() string {
	scratch := regScratch.bits(32)
	return actions(
		move("NXM_OF_ETH_SRC[]", "NXM_OF_ETH_DST[]"), setEthSrc(RouterMAC), "set_field:2->arp_op",
		move("NXM_NX_ARP_SHA[]", "NXM_NX_ARP_THA[]"), "set_field:"+RouterMAC.String()+"->arp_sha",
		move("NXM_OF_ARP_SPA[]", scratch), move("NXM_OF_ARP_TPA[]", "NXM_OF_ARP_SPA[]"),
		move(scratch, "NXM_OF_ARP_TPA[]"), "IN_PORT")
}
