package fastpath

import (
	"net/netip"

	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// Packet is what a verdict depends on. From is the VTEP that a packet came from, with
// the VNID of its tunnel header, or invalid for a packet that came from the container
// behind Ifindex with the source MAC.
type Packet struct {
	Src, Dst netip.Addr
	Ifindex  uint32
	MAC      [6]byte
	From     netip.Addr
	VNID     uint32

	Gateway  bool   // it came from the gateway instead
	Protocol byte   // for the gateway: of IP
	Port     uint16 // destination, of TCP and UDP
	Fragment bool
	Settled  bool // the switch has noted that rules let its connection through
}

// Verdict is what the programs do with a packet. Its zero value says that it goes on
// to the switch.
type Verdict struct {
	Ifindex uint32 // delivered to the container behind this veth
	MAC     [6]byte
	VTEP    netip.Addr // or sent to this VTEP
	VNID    uint32     // with this VNID
	Gateway bool       // or arrives at the gateway, with MAC
	Copies  string     // or each of these is sent
}

// Verdict is what bpf/fastpath.c does, in Go: for tests, and to read first.
func (c Contents) Verdict(p Packet) Verdict {
	if p.Gateway {
		from := c.lookup(p.Src)
		if dst := c.Locals[p.Dst]; dst.Ifindex != 0 && c.Gate.On && from.From && (dst.Outside || from.To == ToGateway) && (p.Settled || !dst.Guarded) {
			return Verdict{Ifindex: dst.Ifindex, MAC: dst.MAC}
		}
		return Verdict{}
	}
	vnid, realm := p.VNID, pipeline.Realm(0)
	if p.From.IsValid() {
		r := c.lookup(p.Src)
		if r.VTEP != p.From || r.VNID != vnid {
			return Verdict{}
		}
		realm = r.Realm
	} else {
		src := c.Locals[p.Src]
		if src.Ifindex == 0 || src.Ifindex != p.Ifindex || src.MAC != p.MAC {
			return Verdict{}
		}
		if src.Guarded && !p.Settled {
			return Verdict{}
		}
		vnid, realm = src.VNID, src.Realm
	}
	dst, here := c.Locals[p.Dst]
	if !here && p.From.IsValid() {
		return c.spread(p, vnid)
	}
	if here {
		if dst.Ifindex == 0 || dst.Ifindex == p.Ifindex || !reachable(realm.Number(vnid), dst.Realm.Number(dst.VNID)) || dst.Guarded && !p.Settled {
			return Verdict{}
		}
		return Verdict{Ifindex: dst.Ifindex, MAC: dst.MAC}
	}
	r := c.lookup(p.Dst)
	if r.To != 0 {
		if c.Gate.On && c.mayLeave(p, r.To) {
			return Verdict{Gateway: true, MAC: c.Gate.MAC}
		}
		return Verdict{}
	}
	if !r.VTEP.IsValid() {
		return c.spread(p, vnid)
	}
	if !reachable(realm.Number(vnid), r.Realm.Number(r.VNID)) {
		return Verdict{}
	}
	return Verdict{VTEP: r.VTEP, VNID: vnid}
}

// mayLeave says whether nothing forbids the packet to go by the gateway.
func (c Contents) mayLeave(p Packet, to To) bool {
	const icmp, tcp, udp, icmpv6 = 1, 6, 17, 58
	switch {
	case p.Fragment, to != ToGateway && !c.Locals[p.Src].Outside:
		return false
	case p.Protocol == icmp, p.Protocol == icmpv6:
		return true
	case p.Protocol != tcp && p.Protocol != udp, to != ToOutside && p.Port == c.Gate.Gossip:
		return false
	}
	return p.Protocol == tcp || p.Port != c.Gate.VXLAN
}

func reachable(a, b uint32) bool { return a == b || a == 0 || b == 0 }

func (c Contents) lookup(a netip.Addr) Range {
	for bits := a.BitLen(); bits >= 0; bits-- {
		if p, err := a.Prefix(bits); err == nil {
			if r, ok := c.Ranges[p]; ok {
				return r
			}
		}
	}
	return Range{}
}
