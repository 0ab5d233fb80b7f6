package pipeline

import (
	"net"
	"net/netip"
	"slices"
)

// Group is an address of a network that several of its endpoints get packets for: a multicast group, or a broadcast address.
// Its packets go from an endpoint of the network to members here and to hosts with members, a copy each, and from there to
// members alone. So what came out of a tunnel never goes into one.
type Group struct {
	VNID uint32
	Addr netip.Addr
	// Ports are the OpenFlow ports of the members here, in order.
	Ports []uint32
	// VTEPs are those of hosts with members, in order: of an encrypted network, inside what encrypts.
	VTEPs     []netip.Addr
	Encrypted bool // the network is
}

// GroupKey says which group of which network.
type GroupKey struct {
	VNID uint32
	Addr netip.Addr
}

// Key is the group's own.
func (g Group) Key() GroupKey { return GroupKey{g.VNID, g.Addr} }

func (g Group) equal(o Group) bool {
	return g.Key() == o.Key() && g.Encrypted == o.Encrypted && slices.Equal(g.Ports, o.Ports) && slices.Equal(g.VTEPs, o.VTEPs)
}

// groups6 are the addresses of groups of IPv6.
var groups6 = netip.MustParsePrefix("ff00::/8")

// IsGroup reports whether an address can be a Group's. What is broadcast to a subnet only its prefix says.
func IsGroup(a netip.Addr) bool { return a.IsMulticast() && !a.Is4In6() || a.Is4() }

// Broadcast is the broadcast address of a subnet; invalid: it has none (RFC 3021).
func Broadcast(p netip.Prefix) netip.Addr {
	if !p.Addr().Is4() || p.Bits() > 30 {
		return netip.Addr{}
	}
	b := p.Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(b)
}

// GroupMAC is where frames for the group go (RFC 1112, 6.4; RFC 2464, 7).
func GroupMAC(a netip.Addr) net.HardwareAddr {
	switch b := a.As16(); {
	case !a.IsMulticast():
		return net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	case a.Is4():
		return net.HardwareAddr{1, 0, 0x5e, b[13] & 0x7f, b[14], b[15]}
	default:
		return net.HardwareAddr{0x33, 0x33, b[12], b[13], b[14], b[15]}
	}
}

// forwardGroups sends UDP to the members of groups. Who sends need not be one. It is the network's members that get it, though
// the network is one with others (Realm).
//
// Other protocols go to nobody. What kernels say of their groups (IGMP, MLD) would only mislead other members, which say nothing of
// a group when they hear another's report; and no container is a router for others.
func forwardGroups(c *compiler) {
	for _, g := range c.in.Groups {
		f, to := familyOf(g.Addr), match{}.toGroup(g)
		var local []string
		if len(g.Ports) > 0 {
			local = append(local, setEthSrc(RouterMAC), setEthDst(GroupMAC(g.Addr)))
		}
		for _, p := range g.Ports {
			local = append(local, output(p))
		}
		if in := to.reg(regClass, classTunnel); local != nil && g.Encrypted {
			c.add(Forwarding, forwardingGroup, vnidObject(g.VNID), in.reg(regSecure, 1), local...)
		} else if local != nil {
			c.add(Forwarding, forwardingGroup, vnidObject(g.VNID), in, local...)
		}
		if act := append(local, c.replicate(g)...); len(act) > 0 {
			c.add(Forwarding, forwardingGroup, vnidObject(g.VNID), to.reg(regClass, classEndpoint), act...)
			// Elsewhere what follows a first fragment that rules drop is held at Commit, where this does not come.
			if c.in.policed && f == ipv4 {
				c.drop(Forwarding, forwardingGroupRest, DropEgress, to.reg(regClass, classEndpoint).reg(regJudgeEgress, 1).with(fieldFrag, "nw_frag=later"))
			}
		}
	}
}

// toGroup matches UDP of the group's network to it.
func (m match) toGroup(g Group) match {
	f := familyOf(g.Addr)
	return m.reg(regSrcVNID, g.VNID).proto(f.udp).with(fieldDst, "%s=%s", f.dst, addrText(g.Addr))
}

// replicate sends a copy to each host with members.
func (c *compiler) replicate(g Group) (act []string) {
	if c.in.TunnelPort == 0 {
		return nil
	}
	was4 := false
	for _, a := range g.VTEPs {
		i, ok := c.index[a]
		if !ok {
			continue
		}
		if len(act) == 0 {
			act = c.carryVNID()
		}
		if c.in.Tunnel == HeaderBits {
			act = append(act, setEthDst(vtepMAC(i)))
		} else {
			if was4 && a.Is6() { // the kernel takes no packet to addresses of both families
				act = append(act, setTunDst(netip.IPv4Unspecified()))
			}
			was4 = a.Is4()
			act = append(act, setTunDst(a))
		}
		act = append(act, output(c.in.TunnelPort))
	}
	return act
}

// guardGroups lets endpoints send to groups from their link-local IPv6 addresses, which kernels choose for groups of the same link, and lets
// those of other hosts in, each from its own host.
func guardGroups(c *compiler) {
	for _, n := range c.in.Neighbours {
		if i, ok := c.index[n.VTEP]; ok && n.Multicast && n.Addr.Is6() {
			from := match{}.reg(regClass, classTunnel).reg(regVTEP, i).reg(regSrcVNID, n.VNID)
			c.add(SpoofGuard, spoofOfHost, vtepObject(n.VTEP), from.ipSrc(host(n.Addr)).andDst(groups6), goTo(SpoofGuard.next()))
		}
	}
}
