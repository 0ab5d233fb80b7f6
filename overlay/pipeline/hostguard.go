package pipeline

// The priorities of host-guard: all of these are dropped.
const (
	hostGuardPort   = 200 // what hosts say to each other: VXLAN, GRE, gossip
	hostGuardHidden = 150 // what that may come out of, at another host
)

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
		c.drop(HostGuard, hostGuardPort, DropForgedTunnel, m)
	}
	for _, f := range []family{ipv4, ipv6} {
		if c.in.GossipPort != 0 {
			c.drop(HostGuard, hostGuardPort, DropGossip, match{}.proto(f.udp).port(c.in.GossipPort))
			c.drop(HostGuard, hostGuardPort, DropGossip, match{}.proto(f.tcp).port(c.in.GossipPort))
		}
		toOther := match{}.reg(regHost, 1).proto(f.proto)
		for _, p := range tunnels {
			c.drop(HostGuard, hostGuardHidden, DropHidden, toOther.ipProto(p))
		}
	}
	// IPv4 puts fragments together by protocol. Of IPv6 the first one says which it is, and may
	// say so behind other headers.
	for _, f := range []string{ipv4.udp, ipv6.proto} {
		c.drop(HostGuard, hostGuardHidden, DropHidden, match{}.reg(regHost, 1).proto(f).fragment())
	}
	c.pass(HostGuard)
}
