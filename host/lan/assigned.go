package lan

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
)

// An address that we have added has a mark, which `ip address` shows. An administrator's own has none, and is not ours to
// remove. Of IPv4 it is at the end of the label. One of IPv6 has no label, but a metric, which would be that of its
// subnet's route: ours has no such route. Linux keeps it since 4.18.
const (
	mark   = ":gv"
	metric = 0x6776 // "gv"
)

// assigned is an address that an interface has.
type assigned struct {
	link   int
	prefix netip.Prefix
	label  string
	ours   bool
	failed bool // another machine has it, as the kernel found by duplicate address detection, and this one cannot use it
}

func addresses() ([]assigned, error) {
	all, err := link.Dump(func() (list []assigned, err error) {
		req := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
		req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
		messages, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWADDR)
		for _, m := range messages {
			if a, ok := read(m); ok {
				list = append(list, a)
			}
		}
		return list, err
	})
	if err != nil {
		return nil, fmt.Errorf("list this host's addresses: %w", err)
	}
	return all, nil
}

// read reads what the kernel says of an address.
func read(message []byte) (assigned, bool) {
	if len(message) < unix.SizeofIfAddrmsg {
		return assigned{}, false
	}
	msg := nl.DeserializeIfAddrmsg(message)
	attrs, err := nl.ParseRouteAttr(message[msg.Len():])
	if err != nil {
		return assigned{}, false
	}
	var local, peer netip.Addr
	a := assigned{link: int(msg.Index), failed: msg.Flags&unix.IFA_F_DADFAILED != 0}
	for _, t := range attrs {
		switch t.Attr.Type {
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(t.Value)
		case unix.IFA_ADDRESS:
			peer, _ = netip.AddrFromSlice(t.Value)
		case unix.IFA_LABEL:
			a.label = strings.TrimRight(string(t.Value), "\x00")
		case unix.IFA_RT_PRIORITY:
			a.ours = msg.Family == unix.AF_INET6 && len(t.Value) == 4 && binary.NativeEndian.Uint32(t.Value) == metric
		}
	}
	if !local.IsValid() { // of IPv6 without a peer
		local = peer
	}
	a.ours = a.ours || strings.HasSuffix(a.label, mark)
	a.prefix = netip.PrefixFrom(local, int(msg.Prefixlen))
	return a, a.prefix.IsValid()
}

// addV6 adds an IPv6 address with our mark. It is there at once, since we have asked who has it, and is deprecated: this
// host chooses it for nothing that it sends itself. It brings no route along.
func addV6(link int, a netip.Addr) error {
	number := func(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }
	lifetimes := make([]byte, unix.SizeofIfaCacheinfo)
	binary.NativeEndian.PutUint32(lifetimes[4:], math.MaxUint32) // it is valid for ever, and preferred for no time
	req := nl.NewNetlinkRequest(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	msg := nl.NewIfAddrmsg(unix.AF_INET6)
	msg.Index, msg.Prefixlen = uint32(link), uint8(a.BitLen())
	req.AddData(msg)
	for _, attr := range []*nl.RtAttr{
		nl.NewRtAttr(unix.IFA_LOCAL, a.AsSlice()), nl.NewRtAttr(unix.IFA_ADDRESS, a.AsSlice()),
		nl.NewRtAttr(unix.IFA_FLAGS, number(unix.IFA_F_NODAD|unix.IFA_F_NOPREFIXROUTE)),
		nl.NewRtAttr(unix.IFA_CACHEINFO, lifetimes), nl.NewRtAttr(unix.IFA_RT_PRIORITY, number(metric)),
	} {
		req.AddData(attr)
	}
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}
