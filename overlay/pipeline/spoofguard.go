package pipeline

import (
	"net/netip"
)

// The priorities of spoof-guard. What an endpoint, another host or this one sends is let on by its flow, and what else came
// the same way is dropped below it.
const (
	// From the tunnel.
	spoofOfHost = 1400 // another host's own address, its answer to this one, a neighbour's link-local address: each by its VTEP
	// Here are ranges of other hosts: byLength.
	spoofAnswerTo   = 610 // from the gateway: what the agent answers an endpoint here for what a rule rejects
	spoofAnswerFor  = 600 // the same in the place of an endpoint here
	spoofAnswerElse = 590 // dropped: all else with the agent's MAC address
	spoofProbe      = 410 // agents' probes
	spoofNotOutside = 408 // dropped: it comes as from outside, with an address that is the cluster's or nobody's
	spoofExposed    = 406 // from outside to an exposed port, by another host
	spoofExit       = 405 // from outside to who leaves by an egress, by its gateway
	spoofTunnelElse = 400 // dropped

	spoofEndpoint = 300 // port, MAC and address are an endpoint's

	// From the gateway.
	spoofOwnHost      = 240 // this host's own address among hosts
	spoofOtherHost    = 230 // dropped: another's
	spoofGateway      = 220 // a subnet's gateway address
	spoofReplySecure  = 216 // what a container here answers another host; of two networks that overlap, the encrypted one's
	spoofReply        = 215
	spoofForged       = 210 // dropped: a container's address, which nobody behind the gateway has
	spoofGatewayElse  = 200 // the host, and whoever is behind it
	spoofLinkLocal    = 150 // dropped, with a reason of its own: from an endpoint
	spoofEndpointElse = 100 // dropped, and counted as the endpoint's
)

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
				c.add(SpoofGuard, byLength(r.Prefix, rangeWay), routeObject(r.Prefix),
					src.reg(regVTEP, i).reg(regSrcVNID, r.VNID), goTo(SpoofGuard.next()))
			}
		}
		c.add(SpoofGuard, byLength(r.Prefix, rangeElse), routeObject(r.Prefix), src, drop)
	}
	c.drop(SpoofGuard, spoofTunnelElse, DropTunnelSource, tunnel)
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
			c.add(SpoofGuard, spoofGateway, subnetObject(s.Prefix), gateway.ipSrc(host(s.Gateway)), s.secured(goTo(SpoofGuard.next()))...)
		}
		c.add(SpoofGuard, spoofForged, subnetObject(s.Prefix), gateway.ipSrc(s.Prefix), drop)
	}
	c.add(SpoofGuard, spoofGatewayElse, object{}, gateway, goTo(SpoofGuard.next()))
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
			c.add(SpoofGuard, spoofEndpoint, o, m.ethSrc(p.MAC), p.accepted(SpoofGuard.next())...)
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
		c.add(SpoofGuard, spoofEndpointElse, o, port, drop)
	}
	endpoint := match{}.reg(regClass, classEndpoint)
	c.drop(SpoofGuard, spoofLinkLocal, DropLinkLocal, endpoint.ipSrc(netip.MustParsePrefix("fe80::/10")))
	c.drop(SpoofGuard, spoofLinkLocal, DropLinkLocal, endpoint.ipSrc(host(netip.IPv6Unspecified())))
	c.drop(SpoofGuard, otherwise, DropUnknownPort, match{})
}
