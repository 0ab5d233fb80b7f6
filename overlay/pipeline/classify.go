package pipeline

import (
	"net"
)

// The priorities of classify.
const (
	classifyVLAN = 200 // dropped
	classifyPort = 100 // the tunnel's and the gateway's; all other ports are endpoints'
)

// The priorities of tunnel-source, and of tunnel-inside.
const (
	tunnelSourceKnown = 100 // of a VTEP that is known
	tunnelSourceOwn   = 50  // dropped
)

// classify says where a packet came from. What is on no known port is an
// endpoint's until the spoof guard has looked.
func classify(c *compiler) {
	c.drop(Classify, classifyVLAN, DropVLAN, match{}.vlanTagged())
	if c.in.TunnelPort != 0 {
		c.add(Classify, classifyPort, object{}, match{}.inPort(c.in.TunnelPort), load(regClass, classTunnel), goTo(TunnelSource))
	}
	if c.in.InsidePort != 0 {
		c.add(Classify, classifyPort, object{}, match{}.inPort(c.in.InsidePort), load(regClass, classTunnel), goTo(TunnelInside))
		c.add(TunnelInside, otherwise, object{}, match{}, goTo(TunnelSource)) // which drops and counts it
	}
	if c.in.GatewayPort != 0 {
		c.add(Classify, classifyPort, object{}, match{}.inPort(c.in.GatewayPort), load(regClass, classGateway), goTo(SpoofGuard))
	}
	c.add(Classify, otherwise, object{}, match{}, load(regClass, classEndpoint), goTo(SpoofGuard))
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
		c.add(c.in.source(v), tunnelSourceKnown, vtepObject(v.Addr), c.fromVTEP(v), append(act, goTo(SpoofGuard))...)
	}
	if c.in.Tunnel == HeaderBits && c.in.TunnelPort != 0 {
		// What came by a tunnel is for the MAC of a VTEP. The kernel speaks to groups out of the device before the port.
		c.drop(TunnelSource, tunnelSourceOwn, DropUnwrapped, match{}.with(fieldEthDst, "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00"))
	}
	c.drop(TunnelSource, otherwise, DropUnknownVTEP, match{})
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
