package nft

import (
	"encoding/binary"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Expr is one expression of a rule: it leaves a value in a register, ends the rule for
// packets that do not match, or does something with those that do.
type Expr = *nl.RtAttr

func expr(name string, attrs ...*nl.RtAttr) Expr {
	e := nl.NewRtAttr(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, nil)
	e.AddChild(text(unix.NFTA_EXPR_NAME, name))
	data := e.AddRtAttr(unix.NFTA_EXPR_DATA|unix.NLA_F_NESTED, nil)
	for _, a := range attrs {
		data.AddChild(a)
	}
	return e
}

// Meta loads a property of the packet (unix.NFT_META_...) into register 1.
func Meta(key uint32) Expr { return MetaTo(unix.NFT_REG_1, key) }

// MetaTo is Meta into another register.
func MetaTo(register, key uint32) Expr {
	return expr("meta", nl.NewRtAttr(unix.NFTA_META_KEY, be32(key)), nl.NewRtAttr(unix.NFTA_META_DREG, be32(register)))
}

// BySecurity loads whether the packet came by IPsec into register 1, as a byte (nft(8): meta ipsec).
func BySecurity() Expr {
	const secpath = 25 // NFT_META_SECPATH
	return Meta(secpath)
}

// ToSecurity loads whether it leaves by IPsec, as its route has it (nft(8): rt ipsec; Linux 4.20).
func ToSecurity() Expr {
	const xfrm = 4 // NFT_RT_XFRM
	return expr("rt", nl.NewRtAttr(unix.NFTA_RT_KEY, be32(xfrm)), nl.NewRtAttr(unix.NFTA_RT_DREG, be32(unix.NFT_REG_1)))
}

// CT loads what conntrack has of the packet's connection (unix.NFT_CT_...) into register 1.
func CT(key uint32) Expr {
	return expr("ct", nl.NewRtAttr(unix.NFTA_CT_KEY, be32(key)), nl.NewRtAttr(unix.NFTA_CT_DREG, be32(unix.NFT_REG_1)))
}

// CTOriginal loads what the first packet of the connection had (unix.NFT_CT_...) into
// register 1, whatever NAT did to it since (addresses by family: Linux 4.17).
func CTOriginal(key uint32) Expr {
	return expr("ct", nl.NewRtAttr(unix.NFTA_CT_KEY, be32(key)), nl.NewRtAttr(unix.NFTA_CT_DIRECTION, []byte{0}), nl.NewRtAttr(unix.NFTA_CT_DREG, be32(unix.NFT_REG_1)))
}

// Extension leaves 1 in register 1 if an IPv6 packet has an extension header of that number,
// behind whatever others, else 0.
func Extension(header byte) Expr {
	const present = 1 // NFT_EXTHDR_F_PRESENT
	return expr("exthdr",
		nl.NewRtAttr(unix.NFTA_EXTHDR_DREG, be32(unix.NFT_REG_1)), nl.NewRtAttr(unix.NFTA_EXTHDR_TYPE, []byte{header}),
		nl.NewRtAttr(unix.NFTA_EXTHDR_OFFSET, be32(0)), nl.NewRtAttr(unix.NFTA_EXTHDR_LEN, be32(1)), nl.NewRtAttr(unix.NFTA_EXTHDR_FLAGS, be32(present)))
}

// WayBack leaves 1 in register 1 if this host has a route to the packet's source by the
// interface that it came in by, be there better ones by others; else 0. Not every kernel has it.
func WayBack() Expr {
	const flags = unix.NFTA_FIB_F_SADDR | unix.NFTA_FIB_F_IIF | unix.NFTA_FIB_F_PRESENT
	return expr("fib",
		nl.NewRtAttr(unix.NFTA_FIB_DREG, be32(unix.NFT_REG_1)), nl.NewRtAttr(unix.NFTA_FIB_RESULT, be32(unix.NFT_FIB_RESULT_OIF)),
		nl.NewRtAttr(unix.NFTA_FIB_FLAGS, be32(flags)))
}

// SourceType leaves in register 1 what the packet's source is to this host, a type of route: unix.RTN_LOCAL is its own. Not
// every kernel has it.
func SourceType() Expr {
	return expr("fib",
		nl.NewRtAttr(unix.NFTA_FIB_DREG, be32(unix.NFT_REG_1)), nl.NewRtAttr(unix.NFTA_FIB_RESULT, be32(unix.NFT_FIB_RESULT_ADDRTYPE)),
		nl.NewRtAttr(unix.NFTA_FIB_FLAGS, be32(unix.NFTA_FIB_F_SADDR)))
}

// Payload loads bytes of a header (unix.NFT_PAYLOAD_...) into register 1.
func Payload(base, offset, length uint32) Expr {
	return PayloadTo(unix.NFT_REG_1, base, offset, length)
}

// PayloadTo is Payload into another register.
func PayloadTo(register, base, offset, length uint32) Expr {
	return expr("payload",
		nl.NewRtAttr(unix.NFTA_PAYLOAD_DREG, be32(register)), nl.NewRtAttr(unix.NFTA_PAYLOAD_BASE, be32(base)),
		nl.NewRtAttr(unix.NFTA_PAYLOAD_OFFSET, be32(offset)), nl.NewRtAttr(unix.NFTA_PAYLOAD_LEN, be32(length)))
}

// Masked keeps those bits of register 1.
func Masked(mask []byte) Expr {
	return expr("bitwise",
		nl.NewRtAttr(unix.NFTA_BITWISE_SREG, be32(unix.NFT_REG_1)), nl.NewRtAttr(unix.NFTA_BITWISE_DREG, be32(unix.NFT_REG_1)),
		nl.NewRtAttr(unix.NFTA_BITWISE_LEN, be32(uint32(len(mask)))),
		data(unix.NFTA_BITWISE_MASK, mask), data(unix.NFTA_BITWISE_XOR, make([]byte, len(mask))))
}

// Equal ends the rule for packets for which register 1 is otherwise.
func Equal(value []byte) Expr { return compare(unix.NFT_CMP_EQ, value) }

// NotEqual ends the rule for packets for which register 1 is this.
func NotEqual(value []byte) Expr { return compare(unix.NFT_CMP_NEQ, value) }

func compare(op uint32, value []byte) Expr {
	return expr("cmp", nl.NewRtAttr(unix.NFTA_CMP_SREG, be32(unix.NFT_REG_1)), nl.NewRtAttr(unix.NFTA_CMP_OP, be32(op)), data(unix.NFTA_CMP_DATA, value))
}

// In ends the rule for packets whose register 1 is not in the set; not: for those whose is.
func In(set string, not bool) Expr {
	flags := uint32(0)
	if not {
		flags = 1 // NFT_LOOKUP_F_INV
	}
	return expr("lookup", text(unix.NFTA_LOOKUP_SET, set), nl.NewRtAttr(unix.NFTA_LOOKUP_SREG, be32(unix.NFT_REG_1)), nl.NewRtAttr(unix.NFTA_LOOKUP_FLAGS, be32(flags)))
}

// Random leaves a number below n in a register, another one each time.
func Random(register, n uint32) Expr {
	return expr("numgen",
		nl.NewRtAttr(unix.NFTA_NG_DREG, be32(register)), nl.NewRtAttr(unix.NFTA_NG_MODULUS, be32(n)), nl.NewRtAttr(unix.NFTA_NG_TYPE, be32(unix.NFT_NG_RANDOM)))
}

// Look leaves in a register what a map has for the value in register 1 and behind it, and ends the rule for packets
// for which it has nothing.
func Look(set string, register uint32) Expr {
	return expr("lookup", text(unix.NFTA_LOOKUP_SET, set), nl.NewRtAttr(unix.NFTA_LOOKUP_SREG, be32(unix.NFT_REG_1)), nl.NewRtAttr(unix.NFTA_LOOKUP_DREG, be32(register)))
}

// Immediate leaves a value in a register.
func Immediate(register uint32, value []byte) Expr {
	return expr("immediate", nl.NewRtAttr(unix.NFTA_IMMEDIATE_DREG, be32(register)), data(unix.NFTA_IMMEDIATE_DATA, value))
}

// Counter counts packets and bytes.
func Counter() Expr { return expr("counter") }

// Drop ends the packet's way through everything.
func Drop() Expr { return verdict(0) }

// Accept ends the packet's way through this chain only.
func Accept() Expr { return verdict(1) }

func verdict(code uint32) Expr {
	value := nl.NewRtAttr(unix.NFTA_IMMEDIATE_DATA|unix.NLA_F_NESTED, nil)
	v := value.AddRtAttr(unix.NFTA_DATA_VERDICT|unix.NLA_F_NESTED, nil)
	v.AddRtAttr(unix.NFTA_VERDICT_CODE, be32(code))
	return expr("immediate", nl.NewRtAttr(unix.NFTA_IMMEDIATE_DREG, be32(unix.NFT_REG_VERDICT)), value)
}

// Redirect leads the packet to the port of this host's that is in register 1.
func Redirect() Expr {
	return expr("redir", nl.NewRtAttr(unix.NFTA_REDIR_REG_PROTO_MIN, be32(unix.NFT_REG_1)))
}

// DNAT4 leads the packet to the IPv4 address in register 1 and the port in register 2.
func DNAT4() Expr { return DNAT(false, unix.NFT_REG_2) }

// DNAT leads the packet to the address in register 1 and the port in another register; 0: to the port that it is for.
func DNAT(v6 bool, port uint32) Expr {
	family := uint32(unix.AF_INET)
	if v6 {
		family = unix.AF_INET6
	}
	attrs := []*nl.RtAttr{
		nl.NewRtAttr(unix.NFTA_NAT_TYPE, be32(unix.NFT_NAT_DNAT)),
		nl.NewRtAttr(unix.NFTA_NAT_FAMILY, be32(family)),
		nl.NewRtAttr(unix.NFTA_NAT_REG_ADDR_MIN, be32(unix.NFT_REG_1)),
	}
	if port != 0 {
		attrs = append(attrs, nl.NewRtAttr(unix.NFTA_NAT_REG_PROTO_MIN, be32(port)))
	}
	return expr("nat", attrs...)
}

// SNAT has the packet leave with the address in register 1.
func SNAT(v6 bool) Expr {
	family := uint32(unix.AF_INET)
	if v6 {
		family = unix.AF_INET6
	}
	return expr("nat", nl.NewRtAttr(unix.NFTA_NAT_TYPE, be32(unix.NFT_NAT_SNAT)), nl.NewRtAttr(unix.NFTA_NAT_FAMILY, be32(family)),
		nl.NewRtAttr(unix.NFTA_NAT_REG_ADDR_MIN, be32(unix.NFT_REG_1)))
}

// SNATRange has the packet leave with one of the addresses from that in register 1 to that in register 2, the same one
// for the same sender.
func SNATRange(v6 bool) Expr {
	const persistent = 1 << 3 // NF_NAT_RANGE_PERSISTENT
	family := uint32(unix.AF_INET)
	if v6 {
		family = unix.AF_INET6
	}
	return expr("nat", nl.NewRtAttr(unix.NFTA_NAT_TYPE, be32(unix.NFT_NAT_SNAT)), nl.NewRtAttr(unix.NFTA_NAT_FAMILY, be32(family)),
		nl.NewRtAttr(unix.NFTA_NAT_REG_ADDR_MIN, be32(unix.NFT_REG_1)), nl.NewRtAttr(unix.NFTA_NAT_REG_ADDR_MAX, be32(unix.NFT_REG_2)),
		nl.NewRtAttr(unix.NFTA_NAT_FLAGS, be32(persistent)))
}

// Refuse ends the packet, and tells who sent it that nobody is at that port: by a reset of TCP, or by ICMP or ICMPv6.
func Refuse(tcp bool) Expr {
	if tcp {
		return expr("reject", nl.NewRtAttr(unix.NFTA_REJECT_TYPE, be32(unix.NFT_REJECT_TCP_RST)), nl.NewRtAttr(unix.NFTA_REJECT_ICMP_CODE, []byte{0}))
	}
	return expr("reject", nl.NewRtAttr(unix.NFTA_REJECT_TYPE, be32(unix.NFT_REJECT_ICMPX_UNREACH)), nl.NewRtAttr(unix.NFTA_REJECT_ICMP_CODE, []byte{unix.NFT_REJECT_ICMPX_PORT_UNREACH}))
}

// Name is an interface's, as Meta has it.
func Name(device string) []byte {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, device)
	return name
}

// Addr loads the source or destination address of a family into register 1.
func Addr(v6, destination bool) Expr {
	offset, length := uint32(12), uint32(4)
	if v6 {
		offset, length = 8, 16
	}
	if destination {
		offset += length
	}
	return Payload(unix.NFT_PAYLOAD_NETWORK_HEADER, offset, length)
}

// DestinationPort loads the port of TCP, UDP and their like into register 1.
func DestinationPort() Expr { return Payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2) }

// Port is a port as DestinationPort has it.
func Port(p uint16) []byte { return binary.BigEndian.AppendUint16(nil, p) }

// Bytes is an address as Addr has it.
func Bytes(a netip.Addr) []byte { return a.AsSlice() }

func data(kind int, value []byte) *nl.RtAttr {
	d := nl.NewRtAttr(kind|unix.NLA_F_NESTED, nil)
	d.AddRtAttr(unix.NFTA_DATA_VALUE, value)
	return d
}

func text(kind int, s string) *nl.RtAttr { return nl.NewRtAttr(kind, append([]byte(s), 0)) }

func be32(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }
