// Package conntrack has the kernel forget connections that it remembers. There may be a million of them, which a container or anybody
// outside can make: each is looked at as it comes, and none is kept.
package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Forget has the kernel of the calling thread's namespace forget what of a family a filter matches. Of a connection that knows
// addresses, protocol, ports and the state of TCP.
func Forget(family netlink.InetFamily, which netlink.CustomConntrackFilter) error {
	kept, why := 0, error(nil)
	err := Each(uint8(family), func(entry []byte) {
		if !which.MatchConntrackFlow(flow(entry)) {
			return
		}
		// The dump goes on by another socket, and waits meanwhile.
		ask := request(nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK, uint8(family))
		ask.AddRawData(entry)
		if _, err := ask.Execute(unix.NETLINK_NETFILTER, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			kept, why = kept+1, err
		}
	})
	if kept > 0 {
		err = errors.Join(err, fmt.Errorf("have the kernel forget connections: it keeps %d of them: %w", kept, why))
	}
	return err
}

// Each has look see all that the kernel remembers of a family, AF_UNSPEC: of both, each as it comes, and valid until look returns.
func Each(family uint8, look func(entry []byte)) error {
	return request(nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP, family).ExecuteIter(unix.NETLINK_NETFILTER, 0, func(m []byte) bool {
		if len(m) >= nl.SizeofNfgenmsg {
			look(m[nl.SizeofNfgenmsg:])
		}
		return true
	})
}

func request(kind, flags int, family uint8) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|kind, flags)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	return r
}

func flow(entry []byte) *netlink.ConntrackFlow {
	f := &netlink.ConntrackFlow{Forward: tuple(attribute(entry, nl.CTA_TUPLE_ORIG)), Reverse: tuple(attribute(entry, nl.CTA_TUPLE_REPLY))}
	if state := attribute(attribute(attribute(entry, nl.CTA_PROTOINFO), nl.CTA_PROTOINFO_TCP), nl.CTA_PROTOINFO_TCP_STATE); len(state) == 1 {
		f.ProtoInfo = &netlink.ProtoInfoTCP{State: state[0]}
	}
	return f
}

func tuple(b []byte) (t netlink.IPTuple) {
	from, proto := From(b)
	to, _ := To(b)
	t.Protocol, t.SrcIP, t.SrcPort, t.DstIP, t.DstPort = proto, from.Addr().AsSlice(), from.Port(), to.Addr().AsSlice(), to.Port()
	return t
}

// Begun and Answered are the two ends of an entry, as its first packet has them, and as an answer has: From and To tell them.
func Begun(entry []byte) []byte    { return attribute(entry, nl.CTA_TUPLE_ORIG) }
func Answered(entry []byte) []byte { return attribute(entry, nl.CTA_TUPLE_REPLY) }

// From and To are one of the two ends, and the protocol; they are zero where the message has none. What has no ports has 0.
func From(ends []byte) (netip.AddrPort, uint8) {
	return end(ends, nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC, nl.CTA_PROTO_SRC_PORT)
}

func To(ends []byte) (netip.AddrPort, uint8) {
	return end(ends, nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST, nl.CTA_PROTO_DST_PORT)
}

func end(ends []byte, v4, v6, port uint16) (at netip.AddrPort, proto uint8) {
	addrs, numbers := attribute(ends, nl.CTA_TUPLE_IP), attribute(ends, nl.CTA_TUPLE_PROTO)
	a, is := netip.AddrFromSlice(attribute(addrs, v4))
	if !is {
		a, is = netip.AddrFromSlice(attribute(addrs, v6))
	}
	kind := attribute(numbers, nl.CTA_PROTO_NUM)
	if !is || len(kind) != 1 {
		return netip.AddrPort{}, 0
	}
	var n uint16
	if b := attribute(numbers, port); len(b) == 2 {
		n = binary.BigEndian.Uint16(b)
	}
	return netip.AddrPortFrom(a.Unmap(), n), kind[0]
}

// attribute is the value of the first attribute of a kind among several, nil: there is none.
func attribute(b []byte, kind uint16) []byte {
	const head = unix.SizeofNlAttr
	for len(b) >= head {
		n := int(binary.NativeEndian.Uint16(b))
		if n < head || n > len(b) {
			return nil
		}
		if binary.NativeEndian.Uint16(b[2:])&nl.NLA_TYPE_MASK == kind {
			return b[head:n]
		}
		b = b[min((n+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(b)):]
	}
	return nil
}
