package pipeline

import "net/netip"

// exitErrors leads to an endpoint what the holder of its egress says of a packet that it could not pass on: too big for
// the way out, no way there, not allowed, too many hops. The holder says it as a host, by its own address in the overlay. To this
// host's gateway, where all else goes that hosts say, it is about a connection that nobody knows. The container hears it
// from its own gateway, as of a packet that leaves here. "No such port" (code 3) is not among them: hosts say that of
// their own ports, to which containers come by the gateway.
func exitErrors(c *compiler) {
	for _, e := range c.in.Exits {
		if !e.remote(c) || !e.V4 {
			continue
		}
		for _, p := range c.in.Ports {
			if p.VNID != e.VNID || p.Internal {
				continue
			}
			for _, a := range p.Addrs {
				for _, r := range e.Routers {
					if a.Is4() && e.of(a) && r.Contains(a) {
						c.exitError(e, p, a, r.Addr())
					}
				}
			}
		}
	}
}

// unsent are the ICMP errors of who passes packets on, by type and code (RFC 792).
var unsent = [][2]int{{3, 0}, {3, 1}, {3, 4}, {3, 13}, {11, 0}}

func (c *compiler) exitError(e Exit, p Port, a, router netip.Addr) {
	from := match{}.reg(regClass, classTunnel).reg(regSrcVNID, 0).reg(regVTEP, e.Index).proto("icmp").with(fieldDst, "nw_dst=%s", addrText(a))
	for _, h := range e.Hosts {
		if !h.Is4() {
			continue
		}
		for _, u := range unsent {
			c.add(Forwarding, forwardingExitError, endpointObject(p.Endpoint),
				from.with(fieldSrc, "nw_src=%s", addrText(h)).with(fieldPortDst, "icmp_type=%d", u[0]).with(fieldICMPCode, "icmp_code=%d", u[1]),
				append([]string{"set_field:" + addrText(router) + "->ip_src"}, toEndpoint(p)...)...)
		}
	}
}
