package pipeline

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// field is a match field; the order is the one in which ovs-ofctl prints them.
type field uint8

const (
	fieldConjID field = iota
	fieldCTState
	fieldCTZone
	fieldCTMark
	fieldCTLabel
	fieldCTSrc
	fieldCTDst
	fieldCTProto
	fieldCTPortSrc
	fieldCTPortDst
	fieldProto
	fieldReg         // + register number
	fieldTunID field = fieldReg + 16 + iota
	fieldTunSrc
	fieldInPort
	fieldVLAN
	fieldEthSrc
	fieldEthDst
	fieldEthType
	fieldSrc // nw_src, ipv6_src, arp_spa
	fieldDst // nw_dst, ipv6_dst, arp_tpa
	fieldNWProto
	fieldARPOp
	fieldARPSHA
	fieldFrag
	fieldPortSrc
	fieldPortDst // or ICMP type
	fieldICMPCode
	fieldNDTarget
	fieldTCPFlags
)

type term struct {
	field field
	text  string
}

// match is a set of conditions. The zero value matches everything. Its methods
// return a new match, so that a match may be shared as a prefix of others.
type match struct {
	regs  [16]struct{ value, mask uint32 }
	terms []term
}

func (m match) with(f field, format string, a ...any) match {
	m.terms = append(slices.Clip(m.terms), term{f, fmt.Sprintf(format, a...)})
	return m
}

// reg matches a register's value.
func (m match) reg(r register, v uint32) match {
	m.regs[r.Num].value |= v << r.Low
	m.regs[r.Num].mask |= r.mask()
	return m
}

// proto matches a protocol, once: the switch says it once, and a flow that it spells in another way than this is one that somebody changed.
func (m match) proto(p string) match {
	if slices.Contains(m.terms, term{fieldProto, p}) {
		return m
	}
	return m.with(fieldProto, "%s", p)
}

func (m match) inPort(p uint32) match             { return m.with(fieldInPort, "in_port=%s", portText(p)) }
func (m match) ethSrc(mac net.HardwareAddr) match { return m.with(fieldEthSrc, "dl_src=%s", mac) }
func (m match) ethDst(mac net.HardwareAddr) match { return m.with(fieldEthDst, "dl_dst=%s", mac) }
func (m match) ethSrcMask(mac, mask string) match {
	return m.with(fieldEthSrc, "dl_src=%s/%s", mac, mask)
}

func (m match) vlanTagged() match                 { return m.with(fieldVLAN, "vlan_tci=0x1000/0x1000") }
func (m match) ethType(text string) match         { return m.with(fieldEthType, "%s", text) }
func (m match) arpOp(op int) match                { return m.with(fieldARPOp, "arp_op=%d", op) }
func (m match) arpSHA(mac net.HardwareAddr) match { return m.with(fieldARPSHA, "arp_sha=%s", mac) }
func (m match) port(p uint16) match               { return m.with(fieldPortDst, "tp_dst=%d", p) }
func (m match) fragment() match                   { return m.with(fieldFrag, "nw_frag=yes") }
func (m match) ipProto(p int) match               { return m.with(fieldNWProto, "nw_proto=%d", p) }
func (m match) arpSPA(a netip.Addr) match         { return m.with(fieldSrc, "arp_spa=%s", addrText(a)) }
func (m match) arpTPA(p netip.Prefix) match       { return m.with(fieldDst, "arp_tpa=%s", prefixText(p)) }

func (m match) tunSrc(a netip.Addr) match {
	return m.with(fieldTunSrc, "%s=%s", tunField(a, "src"), addrText(a))
}

// ipSrc and ipDst match an address range of either family.
func (m match) ipSrc(p netip.Prefix) match {
	f := familyOf(p.Addr())
	return m.proto(f.proto).with(fieldSrc, "%s=%s", f.src, prefixText(p))
}

func (m match) ipDst(p netip.Prefix) match {
	f := familyOf(p.Addr())
	return m.proto(f.proto).with(fieldDst, "%s=%s", f.dst, prefixText(p))
}

// neighbour matches a message of IPv6 neighbour discovery (RFC 4861, 4).
func (m match) neighbour(message int) match {
	return m.proto("icmp6").with(fieldPortDst, "icmp_type=%d", message)
}

// solicits matches a neighbour solicitation for an address of p.
func (m match) solicits(p netip.Prefix) match {
	return m.neighbour(neighbourSolicitation).with(fieldICMPCode, "icmp_code=0").with(fieldNDTarget, "nd_target=%s", prefixText(p))
}

// andDst adds a destination of the same family to ipSrc.
func (m match) andDst(p netip.Prefix) match {
	return m.with(fieldDst, "%s=%s", familyOf(p.Addr()).dst, prefixText(p))
}

// once drops conditions that are there twice.
func (m match) once() match {
	var terms []term
	for _, t := range m.terms {
		if !slices.Contains(terms, t) {
			terms = append(terms, t)
		}
	}
	m.terms = terms
	return m
}

// String is the canonical text: fields in the switch's order, by commas.
func (m match) String() string {
	terms := slices.Clone(m.terms)
	for i, r := range m.regs {
		if r.mask != 0 {
			terms = append(terms, term{fieldReg + field(i), fmt.Sprintf("reg%d=%s", i, maskedText(r.value, r.mask))})
		}
	}
	slices.SortFunc(terms, func(a, b term) int { return cmp.Compare(a.field, b.field) })
	texts := make([]string, len(terms))
	for i, t := range terms {
		texts[i] = t.text
	}
	return strings.Join(texts, ",")
}

// family is what differs between IPv4 and IPv6 in a match.
type family struct{ proto, udp, tcp, icmp, src, dst string }

var (
	ipv4 = family{"ip", "udp", "tcp", "icmp", "nw_src", "nw_dst"}
	ipv6 = family{"ipv6", "udp6", "tcp6", "icmp6", "ipv6_src", "ipv6_dst"}
)

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

// host is the range of one address.
func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// prefixText leaves the length of a host's range out, as the switch does.
func prefixText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return addrText(p.Addr())
	}
	return addrText(p.Addr()) + "/" + strconv.Itoa(p.Bits())
}

// addrText is an address as the switch prints it, by the C library's inet_ntop: the last
// four bytes of an IPv6 address of ::/96 are written as IPv4 (RFC 4291, 2.5.5.1), except
// where they begin with two zero bytes. Any other text would be another flow at each look.
func addrText(a netip.Addr) string {
	b := a.As16()
	if a.Is4() || [12]byte(b[:12]) != [12]byte{} || b[12] == 0 && b[13] == 0 {
		return a.String()
	}
	return "::" + netip.AddrFrom4([4]byte(b[12:])).String()
}

// maskedText writes a value as C's %#x does: zero without a prefix.
func maskedText(value, mask uint32) string {
	if mask == ^uint32(0) {
		return hexText(value)
	}
	return hexText(value) + "/" + hexText(mask)
}

func hexText(v uint32) string {
	if v == 0 {
		return "0"
	}
	return fmt.Sprintf("%#x", v)
}

// portText names the bridge's own port, as the switch does.
func portText(p uint32) string {
	if p == 0xfffffffe || p == 65534 {
		return "LOCAL"
	}
	return strconv.FormatUint(uint64(p), 10)
}

func tunField(a netip.Addr, end string) string {
	if a.Is4() {
		return "tun_" + end
	}
	return "tun_ipv6_" + end
}

func (r register) mask() uint32 {
	return uint32((uint64(1)<<r.Bits - 1) << r.Low)
}
