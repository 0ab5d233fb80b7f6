package pipeline

import (
	"fmt"
	"net"
	"net/netip"
)

// The priorities of arp-responder.
const (
	arpTunnel  = 400 // dropped: no question comes from other hosts
	arpOwn     = 300 // dropped: about the asker's own address
	arpGateway = 210 // about the gateway's address, answered as a router's where that can be written
	arpAnswer  = 200 // about an address that the asker can reach
	arpElse    = 100 // dropped: all else of ARP and neighbour discovery
)

// The priority of nd-reply.
const ndReplyAdvertisement = 100

// answerARP answers requests for any address of a prefix that the asker could
// reach, with the router's MAC. A question about the asker's own address (RFC
// 5227 probe, or announcement) gets no answer, or the asker would believe that
// somebody else has it.
func answerARP(c *compiler) {
	arp := match{}.proto("arp")
	for _, p := range c.in.Ports {
		for _, a := range p.Addrs {
			if a.Is4() {
				c.add(ARPResponder, arpOwn, endpointObject(p.Endpoint), arp.inPort(p.OFPort).arpTPA(host(a)), drop)
			}
		}
	}
	for _, s := range c.in.Subnets {
		if !s.Prefix.Addr().Is4() {
			continue
		}
		o, ask := subnetObject(s.Prefix), arp.arpTPA(s.Prefix).arpOp(1)
		if c.in.GatewayPort != 0 && s.Gateway.IsValid() {
			c.add(ARPResponder, arpOwn, o, arp.inPort(c.in.GatewayPort).arpTPA(host(s.Gateway)), drop)
		}
		if s.VNID == 0 {
			c.add(ARPResponder, arpAnswer, o, ask, arpReply())
			continue
		}
		c.add(ARPResponder, arpAnswer, o, ask.reg(regSrcVNID, s.VNID), arpReply())
		c.add(ARPResponder, arpAnswer, o, ask.reg(regSrcVNID, 0), arpReply())
	}
	c.drop(ARPResponder, arpElse, DropARP, arp)
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
		c.drop(ARPResponder, arpElse, DropND, match{}.neighbour(message))
	}
	c.drop(ARPResponder, arpTunnel, DropND, match{}.reg(regClass, classTunnel).neighbour(neighbourSolicitation))
	for _, p := range c.in.Ports {
		for _, a := range p.Addrs {
			if a.Is6() {
				c.add(ARPResponder, arpOwn, endpointObject(p.Endpoint), match{}.inPort(p.OFPort).solicits(host(a)), drop)
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
			c.add(ARPResponder, arpOwn, o, match{}.inPort(c.in.GatewayPort).solicits(host(s.Gateway)), drop)
		}
		if s.Gateway.IsValid() && c.in.Tunnel != Metadata {
			answer(arpGateway, host(s.Gateway), c.ndReply(flagRouter|flagSolicited|flagOverride))
		}
		answer(arpAnswer, s.Prefix, c.ndReply(flagSolicited|flagOverride))
	}
	if c.in.Tunnel != Metadata {
		c.add(NDReply, ndReplyAdvertisement, object{}, match{}.neighbour(neighbourAdvertisement).with(fieldICMPCode, "icmp_code=0"),
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
