package dns

import (
	"encoding/binary"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The wire form of nftables, linux/netfilter/nf_tables.h: messages of attributes,
// numbers in network order.

// nftTableOwner is NFT_TABLE_F_OWNER.
const nftTableOwner = 0x2

// nftMessage is a request to make something in a table of a family, with its netlink header.
func nftMessage(family byte, kind uint16, attrs ...*nl.RtAttr) []byte {
	body := []byte{family, unix.NFNETLINK_V0, 0, 0}
	for _, a := range attrs {
		body = append(body, a.Serialize()...)
	}
	return netlinkMessage(unix.NFNL_SUBSYS_NFTABLES<<8|kind, unix.NLM_F_CREATE|unix.NLM_F_ACK|unix.NLM_F_APPEND, body)
}

// batchMark begins or ends a batch: all of it is done, or nothing.
func batchMark(kind uint16) []byte {
	return netlinkMessage(kind, 0, []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES})
}

func netlinkMessage(kind, flags uint16, body []byte) []byte {
	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, flags|unix.NLM_F_REQUEST)
	m = append(m, make([]byte, 8)...) // sequence and port: the kernel fills in ours
	return append(m, body...)
}

func expr(name string, attrs ...*nl.RtAttr) *nl.RtAttr {
	e := nl.NewRtAttr(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, nil)
	e.AddChild(text(unix.NFTA_EXPR_NAME, name))
	data := e.AddRtAttr(unix.NFTA_EXPR_DATA|unix.NLA_F_NESTED, nil)
	for _, a := range attrs {
		data.AddChild(a)
	}
	return e
}

// metaExpr loads a property of the packet into register 1.
func metaExpr(key uint32) *nl.RtAttr {
	return expr("meta", nl.NewRtAttr(unix.NFTA_META_KEY, be32(key)), nl.NewRtAttr(unix.NFTA_META_DREG, be32(unix.NFT_REG_1)))
}

// payloadExpr loads bytes of a header into register 1.
func payloadExpr(base, offset, length uint32) *nl.RtAttr {
	return expr("payload",
		nl.NewRtAttr(unix.NFTA_PAYLOAD_DREG, be32(unix.NFT_REG_1)), nl.NewRtAttr(unix.NFTA_PAYLOAD_BASE, be32(base)),
		nl.NewRtAttr(unix.NFTA_PAYLOAD_OFFSET, be32(offset)), nl.NewRtAttr(unix.NFTA_PAYLOAD_LEN, be32(length)))
}

// compareExpr ends the rule for packets for which register 1 is otherwise.
func compareExpr(op uint32, value []byte) *nl.RtAttr {
	return expr("cmp", nl.NewRtAttr(unix.NFTA_CMP_SREG, be32(unix.NFT_REG_1)), nl.NewRtAttr(unix.NFTA_CMP_OP, be32(op)), data(unix.NFTA_CMP_DATA, value))
}

func immediateExpr(register uint32, value []byte) *nl.RtAttr {
	return expr("immediate", nl.NewRtAttr(unix.NFTA_IMMEDIATE_DREG, be32(register)), data(unix.NFTA_IMMEDIATE_DATA, value))
}

func data(kind int, value []byte) *nl.RtAttr {
	d := nl.NewRtAttr(kind|unix.NLA_F_NESTED, nil)
	d.AddRtAttr(unix.NFTA_DATA_VALUE, value)
	return d
}

func text(kind int, s string) *nl.RtAttr { return nl.NewRtAttr(kind, append([]byte(s), 0)) }

func be16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }
func be32(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }
