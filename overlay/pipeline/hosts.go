package pipeline

import "net/netip"

// HostRanges are where hosts have addresses of their own (Input.Host, VTEP.Host), from
// which they speak to containers of other hosts: a part of what IPv4 reserves (RFC 1112,
// 4) and a local prefix of IPv6 (RFC 4193), which no pool and no underlay has.
//
// The gateway addresses would not do: every host has the same. The host where the
// container is puts its gateway address in place of the sender's, so that containers
// never see these and answer as they answer their own host. They are for gateways only,
// on both sides: no endpoint sends from or to them.
var HostRanges = []netip.Prefix{
	netip.MustParsePrefix("240.0.0.0/5"), netip.MustParsePrefix("fd67:7261:7065::/64"),
}

// guardHosts lets other hosts in by their own addresses, with VNID 0: each by its own
// only, and answers for this one.
func guardHosts(c *compiler) {
	tunnel := match{}.reg(regClass, classTunnel).reg(regSrcVNID, 0)
	for _, v := range c.in.VTEPs {
		for _, a := range v.Host {
			c.add(SpoofGuard, spoofOfHost, vtepObject(v.Addr), tunnel.reg(regVTEP, v.Index).ipSrc(host(a)), goTo(SpoofGuard.next()))
		}
	}
	gateway := match{}.reg(regClass, classGateway)
	for _, a := range c.in.Host {
		// Containers' answers, and errors that their gateway has for us.
		for _, s := range c.in.Subnets {
			if s.Prefix.Addr().Is4() == a.Is4() && !s.Shut {
				answer := tunnel.ipSrc(s.Prefix).andDst(host(a))
				if s.Encrypted {
					answer = answer.reg(regSecure, 1)
				}
				c.add(SpoofGuard, spoofOfHost, subnetObject(s.Prefix), answer, goTo(SpoofGuard.next()))
			}
		}
		c.add(SpoofGuard, spoofOwnHost, object{}, gateway.ipSrc(host(a)), goTo(SpoofGuard.next()))
	}
	for _, r := range HostRanges {
		c.drop(SpoofGuard, spoofOtherHost, DropHostAddress, gateway.ipSrc(r))
		for _, s := range c.in.Subnets {
			if s.Prefix.Addr().Is4() == r.Addr().Is4() {
				// What this host's containers answer another host.
				priority := spoofReply
				if s.Encrypted { // also of two that overlap
					priority = spoofReplySecure
				}
				c.add(SpoofGuard, priority, subnetObject(s.Prefix), gateway.ipSrc(s.Prefix).andDst(r), s.secured(goTo(SpoofGuard.next()))...)
			}
		}
	}
}

// answerHosts tells the host that other hosts' addresses are behind the gateway port.
func answerHosts(c *compiler) {
	if c.in.GatewayPort == 0 {
		return
	}
	for _, r := range HostRanges {
		ask, reply := match{}.inPort(c.in.GatewayPort).solicits(r), c.ndReply(flagSolicited|flagOverride)
		if r.Addr().Is4() {
			ask, reply = match{}.proto("arp").inPort(c.in.GatewayPort).arpTPA(r).arpOp(1), arpReply()
		}
		c.add(ARPResponder, arpAnswer, object{}, ask, reply)
	}
}

// forwardHosts leads other hosts' packets, and answers for this one, to the gateway, and
// this host's answers to the others.
func forwardHosts(c *compiler) {
	tunnel := match{}.reg(regClass, classTunnel).reg(regSrcVNID, 0)
	for _, r := range HostRanges {
		c.drop(Forwarding, forwardingNobody, DropHostAddress, match{}.reg(regClass, classEndpoint).ipDst(r))
		for _, s := range c.in.Subnets {
			if c.in.GatewayPort != 0 && s.Prefix.Addr().Is4() == r.Addr().Is4() {
				c.add(Forwarding, forwardingHosts, subnetObject(s.Prefix), tunnel.ipSrc(r).andDst(s.Prefix), c.toGateway()...)
			}
		}
	}
	for _, a := range c.in.Host {
		if c.in.GatewayPort != 0 {
			c.add(Forwarding, forwardingHosts, object{}, tunnel.ipDst(host(a)), c.toGateway()...)
		}
	}
	for _, v := range c.in.VTEPs {
		for _, a := range v.Host {
			to := match{}.reg(regClass, classGateway).ipDst(host(a))
			if c.in.TunnelPort != 0 && !v.Beside {
				c.add(Forwarding, forwardingHost, vtepObject(v.Addr), to, c.hostBehind(v)...)
			}
			if c.in.TunnelPort != 0 && v.Secure && len(c.in.Encrypted) > 0 {
				c.add(Forwarding, forwardingHostSecure, vtepObject(v.Addr), to.reg(regSecure, 1), c.hostBehind(v)...)
			}
		}
	}
}

// hostBehind is the way to the host that has a VTEP, for its own addresses.
func (c *compiler) hostBehind(v VTEP) []string {
	return []string{load(regDstVNID, 0), load(regOutPort, c.in.TunnelPort), c.toVTEP(v.Addr, v.Index), goTo(VNIDCheck)}
}

// toGateway is the way to the gateway port.
func (c *compiler) toGateway() []string { return c.toGatewayBy(VNIDCheck) }

func (c *compiler) toGatewayBy(next Stage) []string {
	return []string{
		load(regDstVNID, 0), load(regOutPort, c.in.GatewayPort),
		setEthSrc(RouterMAC), setEthDst(c.in.GatewayMAC), goTo(next),
	}
}
