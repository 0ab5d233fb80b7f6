package pipeline

import (
	"fmt"
	"net/netip"
	"slices"
)

// The priorities of exit-way.
const (
	exitWayAnswer = 200 // to who came in by this host
	exitWayOut    = 100 // by the host that holds the address
)

// Exit says from which host a network's endpoints reach the outside: all of them, from all hosts, by the
// address of that one. Without a host that has it nothing of theirs leaves, and nothing leaves with
// another address. Hosts of the cluster are spoken to as ever.
type Exit struct {
	VNID uint32
	// VTEP is the gateway's, and Index the one that it has here (VTEP.Index). VTEP is invalid if the gateway is this
	// host (Here), or if there is none.
	VTEP  netip.Addr
	Index uint32
	Here  bool
	// Track says that the switch can track connections, and so knows answers to who came in by this host, as by
	// published ports, from what is sent out: those leave as they came.
	Track bool
	// V4 and V6 say of which families there is an address; of the other one nothing leaves.
	V4, V6 bool
	// Hosts are the gateway's addresses in HostRanges, by which it says what it could not pass on, if it is another host.
	// Routers are the network's own gateway addresses, each with the length of its subnet's prefix.
	Hosts   []netip.Addr
	Routers []netip.Prefix
	// Listed says that it is of the endpoints with these Addrs alone: of this host's, and, if this is the gateway, of others'.
	// Others of the network have another one, or leave by their own host.
	Listed bool
	Addrs  []netip.Addr
	// Unknown says that it is not known yet by which host they leave, since their labels are not: so there is none.
	Unknown bool
	// Unheard says that the host by which they leave may take them for who had the address before: so there is none yet.
	Unheard bool
}

// of reports whether an address of an endpoint of its network leaves by it.
func (e Exit) of(a netip.Addr) bool { return !e.Listed || slices.Contains(e.Addrs, a) }

// from matches what it is of, of a family.
func (e Exit) from(m match, f family) (list []match) {
	if !e.Listed {
		return []match{m.proto(f.proto)}
	}
	for _, a := range e.Addrs {
		if familyOf(a) == f {
			list = append(list, m.ipSrc(host(a)))
		}
	}
	return list
}

func (e Exit) has(f family) bool { return f == ipv4 && e.V4 || f == ipv6 && e.V6 }

// remote reports whether the gateway is another host that can be reached.
func (e Exit) remote(c *compiler) bool { return e.VTEP.IsValid() && c.in.TunnelPort != 0 }

// tracks reports whether the switch is to tell answers from what is sent out.
func (e Exit) tracks(c *compiler) bool { return e.Track && c.in.GatewayPort != 0 }

// here reports whether this host is the gateway, and has a way out.
func (e Exit) here(c *compiler) bool { return e.Here && c.in.GatewayPort != 0 }

// exitZone is of connection tracking, for what comes in from outside to endpoints that leave by another host.
const exitZone = 0x6777

// exitOut leads what endpoints send to the outside to their gateway, before it would leave here
// (forwardOutside), and behind what looks for hosts of the cluster.
func exitOut(c *compiler) {
	for _, s := range c.outward() {
		c.exitFrom(s)
		c.ownHost(s)
	}
}

// ownHost leads what endpoints send to another address of their host, such as the one by which Docker has them know it
// (host-gateway), to that host: the gateway's host has the same ones.
func (c *compiler) ownHost(way Stage) {
	if c.in.GatewayPort == 0 {
		return
	}
	for _, a := range c.in.Own {
		c.add(way, outwardOwn, object{}, match{}.reg(regClass, classEndpoint).reg(regInternal, 0).ipDst(host(a)), c.toGatewayBy(HostGuard)...)
	}
}

func (c *compiler) exitFrom(way Stage) {
	tracked := false
	for _, e := range c.in.Exits {
		for _, f := range []family{ipv4, ipv6} {
			tracked = tracked || e.tracks(c) && !(e.here(c) && e.has(f))
			for _, m := range e.from(match{}.reg(regClass, classEndpoint).reg(regInternal, 0).reg(regSrcVNID, e.VNID), f) {
				c.exit(way, e, f, m)
			}
		}
	}
	if tracked {
		c.drop(ExitWay, otherwise, DropNoEgress, match{})
	}
}

// exit leads what matches, of one family, to its gateway.
func (c *compiler) exit(way Stage, e Exit, f family, m match) {
	if e.here(c) && e.has(f) {
		c.add(way, outwardExit, vnidObject(e.VNID), m, c.toGateway()...)
		return
	}
	s, priority := way, outwardExit
	if e.tracks(c) {
		c.add(way, outwardExit, vnidObject(e.VNID), m, fmt.Sprintf("ct(table=%d,zone=%d)", ExitWay, exitZone))
		c.add(ExitWay, exitWayAnswer, vnidObject(e.VNID), m.ctState("+rpl+trk"), c.toGateway()...)
		s, priority = ExitWay, exitWayOut
	}
	switch {
	case e.Unknown:
		c.drop(s, priority, DropUntold, m)
	case e.Unheard:
		c.drop(s, priority, DropUnheard, m)
	case e.remote(c) && e.has(f):
		c.add(s, priority, vnidObject(e.VNID), m, load(regDstVNID, 0), load(regOutPort, c.in.TunnelPort), c.toVTEP(e.VTEP, e.Index), goTo(VNIDCheck))
	default:
		c.drop(s, priority, DropNoEgress, m)
	}
}

// exitIn lets in, at the gateway, what other hosts' endpoints of such a network send to the outside: nothing
// that is for the cluster, and nothing that could not leave their own host. Who they are tunnelSource and
// guardTunnel have seen.
func exitIn(c *compiler) {
	tunnel := match{}.reg(regClass, classTunnel)
	for _, e := range c.in.Exits {
		if !e.here(c) {
			continue
		}
		for _, f := range []family{ipv4, ipv6} {
			if !e.has(f) {
				continue
			}
			for _, m := range e.from(tunnel.reg(regSrcVNID, e.VNID), f) {
				c.add(Forwarding, forwardingExitOut, vnidObject(e.VNID), m, c.toGateway()...)
				if len(c.in.Exposed) > 0 { // fragments of who has an exposed port as well are looked up there
					c.add(ExposeBack, exposeBackExit, vnidObject(e.VNID), m, c.toGateway()...)
				}
			}
		}
	}
	if !c.someExit(Exit.here) {
		return
	}
	c.intoOutside(tunnel)
}

// exitAnswers lets in what the outside answers such endpoints, by their gateway: only from its VTEP, with
// VNID 0, as all that gateways send, and only from addresses that nobody in the cluster has. It notes who comes
// in by this host.
func exitAnswers(c *compiler) {
	tunnel := match{}.reg(regClass, classTunnel)
	for _, e := range c.in.Exits {
		for _, p := range c.in.Ports {
			if p.VNID != e.VNID || p.Internal {
				continue
			}
			for _, a := range p.Addrs {
				if !e.of(a) {
					continue
				}
				if e.tracks(c) && !(e.here(c) && e.has(familyOf(a))) {
					c.add(Forwarding, forwardingExitIn, endpointObject(p.Endpoint), match{}.reg(regClass, classGateway).ipDst(host(a)), fmt.Sprintf("ct(commit,table=%d,zone=%d)", Noted, exitZone))
					c.noted(p, a)
				}
				if e.remote(c) && e.has(familyOf(a)) {
					c.add(SpoofGuard, spoofExit, vnidObject(e.VNID), tunnel.reg(regVTEP, e.Index).reg(regSrcVNID, 0).ipDst(host(a)), goTo(SpoofGuard.next()))
				}
			}
		}
	}
	if !c.someExit(Exit.remote) {
		return
	}
	c.notOfCluster(SpoofGuard, spoofNotOutside, DropTunnelSource, func(p netip.Prefix) match { return tunnel.ipSrc(p) })
}

// notOutside is what nobody outside has for an address, beside what is the cluster's.
var notOutside = []netip.Prefix{
	HostRanges[0], HostRanges[1],
	netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("255.255.255.255/32"), netip.MustParsePrefix("ff00::/8"),
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"),
}

// ofCluster are the subnets of the cluster.
func (c *compiler) ofCluster() (list []netip.Prefix) {
	for _, s := range c.in.Subnets {
		list = append(list, s.Prefix)
	}
	return list
}

func (c *compiler) someExit(is func(Exit, *compiler) bool) bool {
	for _, e := range c.in.Exits {
		if is(e, c) {
			return true
		}
	}
	return false
}
