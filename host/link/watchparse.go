package link

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// netconfIndex is NETCONFA_IFINDEX of linux/netconf.h.
const netconfIndex = 1

// parseChange reads a message of rtnetlink(7); ok is false for one that says nothing here.
func parseChange(m syscall.NetlinkMessage) (c Change, ok bool) {
	le, b := binary.NativeEndian, m.Data
	var head int // bytes of the fixed part
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		c.Kind, c.Gone, head = LinkChange, m.Header.Type == unix.RTM_DELLINK, unix.SizeofIfInfomsg
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		c.Kind, c.Gone, head = AddrChange, m.Header.Type == unix.RTM_DELADDR, unix.SizeofIfAddrmsg
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		c.Kind, c.Gone, head = RouteChange, m.Header.Type == unix.RTM_DELROUTE, unix.SizeofRtMsg
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		c.Kind, c.Gone, head = RuleChange, m.Header.Type == unix.RTM_DELRULE, unix.SizeofRtMsg // struct fib_rule_hdr is as long
	case unix.RTM_NEWQDISC, unix.RTM_NEWTCLASS, unix.RTM_NEWTFILTER:
		c.Kind, head = FilterChange, 20 // struct tcmsg
	case unix.RTM_DELQDISC, unix.RTM_DELTCLASS, unix.RTM_DELTFILTER:
		c.Kind, c.Gone, head = FilterChange, true, 20
	case unix.RTM_NEWNETCONF, unix.RTM_DELNETCONF:
		c.Kind, c.Gone, head = SwitchChange, m.Header.Type == unix.RTM_DELNETCONF, 4 // struct netconfmsg, aligned
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		c.Kind, c.Gone, head = NeighbourChange, m.Header.Type == unix.RTM_DELNEIGH, unix.SizeofNdMsg
	default:
		return c, false
	}
	if len(b) < head {
		return c, false
	}
	// Bridges and bonds tell of their ports by a family of their own.
	family := b[0]
	c.V6 = family == unix.AF_INET6
	switch c.Kind {
	case LinkChange:
		c.Index, c.Up = int(int32(le.Uint32(b[4:]))), le.Uint32(b[8:])&unix.IFF_UP != 0
		c.Gone = c.Gone && family == unix.AF_UNSPEC
	case AddrChange:
		c.Index = int(le.Uint32(b[4:]))
	case RouteChange, RuleChange:
		c.Table = int(b[4])
	case FilterChange, NeighbourChange:
		c.Index = int(int32(le.Uint32(b[4:])))
	}
	for t, v := range attributes(b[head:]) {
		c.attribute(t, v, b)
	}
	return c, true
}

// attribute takes one attribute of a message whose data is b.
func (c *Change) attribute(t uint16, v, b []byte) {
	number := func() int {
		if len(v) < 4 {
			return 0
		}
		return int(int32(binary.NativeEndian.Uint32(v)))
	}
	prefix := func(bits byte) {
		if a, ok := netip.AddrFromSlice(v); ok {
			c.Dst = netip.PrefixFrom(a, int(bits))
		}
	}
	switch {
	case c.Kind == LinkChange && t == unix.IFLA_IFNAME:
		c.Name = string(bytes.TrimRight(v, "\x00"))
	case c.Kind == AddrChange && t == unix.IFA_ADDRESS && !c.Dst.IsValid(), c.Kind == AddrChange && t == unix.IFA_LOCAL:
		prefix(b[1])
	case c.Kind == RouteChange && t == unix.RTA_DST:
		prefix(b[1])
	case c.Kind == RouteChange && t == unix.RTA_OIF:
		c.Index = number()
	case c.Kind == RouteChange && t == unix.RTA_TABLE, c.Kind == RuleChange && t == unix.FRA_TABLE:
		c.Table = number()
	case c.Kind == RuleChange && t == unix.FRA_PRIORITY:
		c.Priority = number()
	case c.Kind == SwitchChange && t == netconfIndex:
		c.Index = number()
	case c.Kind == NeighbourChange && t == unix.NDA_DST:
		if a, ok := netip.AddrFromSlice(v); ok {
			c.Dst = netip.PrefixFrom(a, a.BitLen())
		}
	case c.Kind == NeighbourChange && t == unix.NDA_LLADDR && len(v) == len(c.MAC):
		c.MAC = [6]byte(v)
	case c.Kind == NeighbourChange && t == unix.NDA_MASTER && b[0] == unix.AF_BRIDGE:
		c.Bridge = number()
	}
}

// attributes are those of a message, by their types.
func attributes(b []byte) func(yield func(uint16, []byte) bool) {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofRtAttr {
			size := int(binary.NativeEndian.Uint16(b))
			if size < unix.SizeofRtAttr || size > len(b) {
				return
			}
			if !yield(binary.NativeEndian.Uint16(b[2:])&^uint16(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[unix.SizeofRtAttr:size]) {
				return
			}
			b = b[min((size+3)&^3, len(b)):]
		}
	}
}
