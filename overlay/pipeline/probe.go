package pipeline

import (
	"encoding/binary"
	"net"
	"net/netip"
)

// ProbeEtherType is that of the frames by which agents find out what the tunnel lets
// through: IEEE 802's first one for local experiments (RFC 9542, 3.1). A frame that
// the host sends on its gateway port to ProbeMAC(vtep) travels as VNID 0 to that VTEP,
// and comes out of the gateway port there. Endpoints can neither send nor receive one.
const ProbeEtherType = 0x88b5

const probe = "dl_type=0x88b5"

// ProbeMAC stands for a VTEP in the destination of a probe: 06 and 40 bits of its hash.
func ProbeMAC(vtep netip.Addr) net.HardwareAddr {
	mac := binary.BigEndian.AppendUint64(nil, hash40(vtep.String()))[2:]
	mac[0] = 0x06 // local, unicast (IEEE 802-2014, 8.2)
	return mac
}

// probes carries probes between the gateway port and the tunnel.
func probes(c *compiler) {
	if c.in.GatewayPort == 0 || c.in.TunnelPort == 0 {
		return
	}
	for _, v := range c.in.VTEPs {
		c.add(Forwarding, forwardingProbe, vtepObject(v.Addr), match{}.reg(regClass, classGateway).ethDst(ProbeMAC(v.Addr)).ethType(probe),
			load(regDstVNID, 0), load(regOutPort, c.in.TunnelPort), c.toVTEP(v.Addr, v.Index), goTo(VNIDCheck))
	}
	fromTunnel := match{}.reg(regClass, classTunnel).ethType(probe)
	c.add(SpoofGuard, spoofProbe, object{}, fromTunnel.reg(regSrcVNID, 0), goTo(SpoofGuard.next()))
	c.add(Forwarding, forwardingProbe, object{}, fromTunnel,
		load(regDstVNID, 0), load(regOutPort, c.in.GatewayPort), setEthDst(c.in.GatewayMAC), goTo(VNIDCheck))
}
