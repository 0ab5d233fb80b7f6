package lan

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Neighbour discovery's types (RFC 4861).
const (
	neighborSolicitation  = 135
	neighborAdvertisement = 136
)

// Where things are in a frame without extension headers, as all of neighbour discovery is.
const (
	ethernet   = 14
	atNext     = ethernet + 6
	atHops     = ethernet + 7
	atICMP     = ethernet + 40
	atTarget   = atICMP + 8
	atOptions  = atTarget + 16
	targetLink = 2 // an option
)

// advertisements lets a socket hear those alone, and not all of a busy gateway's IPv6.
var advertisements = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: atNext},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.IPPROTO_ICMPV6, Jf: 3},
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: atICMP},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: neighborAdvertisement, Jf: 1},
	{Code: unix.BPF_RET | unix.BPF_K, K: 0xffff},
	{Code: unix.BPF_RET | unix.BPF_K, K: 0},
}

// solicitation asks, in nobody's name, who has an address: whoever has answers all nodes.
func solicitation(mac net.HardwareAddr, a netip.Addr) []byte {
	last := a.As16()
	group := netip.MustParseAddr("ff02::1:ff00:0").As16()
	copy(group[13:], last[13:])
	return discovery(mac, netip.IPv6Unspecified(), netip.AddrFrom16(group), neighborSolicitation, 0, a, nil)
}

// advertisement tells all nodes that an address is here now, whatever they knew before.
func advertisement(mac net.HardwareAddr, a netip.Addr) []byte {
	const override = 0x20
	return discovery(mac, a, netip.IPv6LinkLocalAllNodes(), neighborAdvertisement, override, a, append([]byte{targetLink, 1}, mac...))
}

func discovery(mac net.HardwareAddr, src, dst netip.Addr, kind, flags byte, target netip.Addr, options []byte) []byte {
	icmp := bytes.Join([][]byte{{kind, 0, 0, 0, flags, 0, 0, 0}, target.AsSlice(), options}, nil)
	binary.BigEndian.PutUint16(icmp[2:], checksum(src, dst, icmp))
	to := dst.As16()
	return bytes.Join([][]byte{
		{0x33, 0x33}, to[12:], mac, {unix.ETH_P_IPV6 >> 8, unix.ETH_P_IPV6 & 0xff},
		{0x60, 0, 0, 0, 0, byte(len(icmp)), unix.IPPROTO_ICMPV6, 255}, src.AsSlice(), dst.AsSlice(), icmp,
	}, nil)
}

// checksum is ICMPv6's (RFC 4443, 2.3).
func checksum(src, dst netip.Addr, icmp []byte) uint16 {
	sum := uint32(len(icmp)) + unix.IPPROTO_ICMPV6
	for _, part := range [][]byte{src.AsSlice(), dst.AsSlice(), icmp} { // all of even length
		for i := 0; i+1 < len(part); i += 2 {
			sum += uint32(part[i])<<8 | uint32(part[i+1])
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// advertiser is the MAC of who says in a neighbour advertisement that it has the address; nil: nobody does.
func advertiser(frame []byte, a netip.Addr) net.HardwareAddr {
	if len(frame) < atOptions || !bytes.Equal(frame[12:14], []byte{unix.ETH_P_IPV6 >> 8, unix.ETH_P_IPV6 & 0xff}) ||
		frame[atNext] != unix.IPPROTO_ICMPV6 || frame[atHops] != 255 || frame[atICMP] != neighborAdvertisement || !bytes.Equal(frame[atTarget:atOptions], a.AsSlice()) {
		return nil
	}
	if o := frame[atOptions:]; len(o) >= 8 && o[0] == targetLink && o[1] == 1 {
		return bytes.Clone(o[2:8])
	}
	return bytes.Clone(frame[6:12])
}
