package pipeline

// The priorities of output. What is marked is of settled connections (settled.go).
const (
	outputEgress  = 220 // into the tunnel, marked: it passed a rule for egress
	outputIngress = 219 // the same of a rule for ingress
	outputTunnel  = 200
	outputNone    = 100 // dropped: there is no port to send it to
	outputGateway = 70  // the same to the gateway
	outputBare    = 65  // of a settled connection, to an endpoint that is sent no marks
	outputSettled = 60  // marked, to all other endpoints
	outputPort    = 50
)

// emit sends the packet out. Into the tunnel it takes its source's VNID, which
// the receiving host checks against the range of its source and again against
// its destination.
func emit(c *compiler) {
	if c.in.TunnelPort != 0 {
		m := match{}.reg(regOutPort, c.in.TunnelPort)
		c.add(Output, outputTunnel, object{}, m, c.encapsulate()...)
	}
	c.drop(Output, outputNone, DropNoDestination, match{}.reg(regOutPort, 0))
	c.add(Output, outputPort, object{}, match{}, outputReg(regOutPort))
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
