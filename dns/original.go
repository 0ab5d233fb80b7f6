package dns

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Attributes and messages of linux/netfilter/nfnetlink_conntrack.h.
const (
	ctMsgGet     = 1
	ctMsgDelete  = 2
	ctTupleOrig  = 1
	ctTupleReply = 2
	ctTupleIP    = 1
	ctTupleProto = 2
	ctIPv4Src    = 1
	ctIPv4Dst    = 2
	ctIPv6Src    = 3
	ctIPv6Dst    = 4
	ctProtoNum   = 1
	ctProtoSrc   = 2
	ctProtoDst   = 3
)

// originalDst returns where a packet from client was going before a rule led it to
// local, an address of this host, as the kernel's connection table has it. That is
// what SO_ORIGINAL_DST does for TCP, and nothing does for UDP. It fails if there is
// no such connection, and needs CAP_NET_ADMIN.
func originalDst(network string, client, local netip.AddrPort) (netip.AddrPort, error) {
	proto := uint8(unix.IPPROTO_UDP)
	if network == "tcp" {
		proto = unix.IPPROTO_TCP
	}
	family := uint8(unix.AF_INET)
	if client.Addr().Is6() {
		family = unix.AF_INET6
	}
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|ctMsgGet, unix.NLM_F_ACK)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	req.AddData(tuple(ctTupleReply, proto, local, client))
	msgs, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("find the connection of %s to %s: %w", client, local, err)
	}
	for _, m := range msgs {
		if dst, ok := origDst(m); ok {
			return dst, nil
		}
	}
	return netip.AddrPort{}, fmt.Errorf("find the connection of %s to %s: the kernel's answer has none", client, local)
}

func tuple(kind int, proto uint8, src, dst netip.AddrPort) *nl.RtAttr {
	srcType, dstType := ctIPv4Src, ctIPv4Dst
	if src.Addr().Is6() {
		srcType, dstType = ctIPv6Src, ctIPv6Dst
	}
	t := nl.NewRtAttr(kind|unix.NLA_F_NESTED, nil)
	ip := t.AddRtAttr(ctTupleIP|unix.NLA_F_NESTED, nil)
	ip.AddRtAttr(srcType, src.Addr().AsSlice())
	ip.AddRtAttr(dstType, dst.Addr().AsSlice())
	p := t.AddRtAttr(ctTupleProto|unix.NLA_F_NESTED, nil)
	p.AddRtAttr(ctProtoNum, []byte{proto})
	p.AddRtAttr(ctProtoSrc, binary.BigEndian.AppendUint16(nil, src.Port()))
	p.AddRtAttr(ctProtoDst, binary.BigEndian.AppendUint16(nil, dst.Port()))
	return t
}

// origDst reads the destination of the original direction out of an entry.
func origDst(msg []byte) (netip.AddrPort, bool) {
	if len(msg) < nl.SizeofNfgenmsg {
		return netip.AddrPort{}, false
	}
	orig := attribute(msg[nl.SizeofNfgenmsg:], ctTupleOrig)
	ip := attribute(orig, ctTupleIP)
	raw := attribute(ip, ctIPv4Dst)
	if raw == nil {
		raw = attribute(ip, ctIPv6Dst)
	}
	addr, ok := netip.AddrFromSlice(raw)
	port := attribute(attribute(orig, ctTupleProto), ctProtoDst)
	if !ok || len(port) != 2 {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(port)), true
}

// attribute returns the value of a netlink attribute, nil if it is not there.
func attribute(attrs []byte, kind int) []byte {
	for len(attrs) >= 4 {
		length := int(binary.NativeEndian.Uint16(attrs))
		have := int(binary.NativeEndian.Uint16(attrs[2:])) &^ unix.NLA_F_NESTED &^ unix.NLA_F_NET_BYTEORDER
		if length < 4 || length > len(attrs) {
			return nil
		}
		if have == kind {
			return attrs[4:length]
		}
		attrs = attrs[min((length+3)&^3, len(attrs)):]
	}
	return nil
}
