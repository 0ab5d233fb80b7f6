package hold

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/service"
	"github.com/grapevine-net/grapevine/service/expose"
)

// forget has the kernel forget where it has led what is not to go on as it is (as service/inside does for containers).
func forget(was map[front]bool, want table) error {
	ours := map[front]bool{}
	for p := range was {
		ours[p] = true
	}
	for p := range want.ports {
		ours[p] = true
	}
	if len(ours) == 0 {
		return nil
	}
	here := map[netip.Addr]bool{}
	for _, a := range want.here {
		here[a] = true
	}
	var errs []error
	for _, f := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, f, stale{ours, here, want.ports})
		if err != nil && !errors.Is(err, unix.EPROTONOSUPPORT) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, netlink.ErrDumpInterrupted) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// stale matches the kernel's entries of what is not to go on as it is: datagrams to a replica that gets none any more,
// or to none since before the port was exposed, and connections to one that is gone. A connection of TCP that is open
// stays with a replica that is there. One to a replica that is gone is led to another one, which ends it.
type stale struct {
	ours map[front]bool // ports that are led, or were
	here map[netip.Addr]bool
	led  map[front]expose.Back
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (s stale) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	at := addrOf(f.Forward.DstIP)
	p := front{expose.Port{UDP: f.Forward.Protocol == service.UDP, Port: f.Forward.DstPort}, at.Is6()}
	if f.Forward.Protocol != service.UDP && f.Forward.Protocol != service.TCP || !s.ours[p] || !s.here[at] {
		return false
	}
	to := netip.AddrPortFrom(addrOf(f.Reverse.SrcIP), f.Reverse.SrcPort)
	back, there := s.led[p]
	switch {
	case slices.Contains(back.Ready, to):
		return false
	case to.Addr() == at:
		return p.UDP && len(back.To) > 0
	case !there || slices.Contains(back.There, to.Addr()):
		return !open(f)
	}
	return true
}

func addrOf(ip []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// open reports whether it is a connection of TCP that both ends have agreed on.
func open(f *netlink.ConntrackFlow) bool {
	tcp, ok := f.ProtoInfo.(*netlink.ProtoInfoTCP)
	return ok && tcp.State >= nl.TCP_CONNTRACK_ESTABLISHED && tcp.State != nl.TCP_CONNTRACK_SYN_SENT2
}

// strays finds connections to ports that this host leads which went elsewhere: by a rule of another program, which comes before
// ours. What was there when the port began to be led has been forgotten (forget).
type strays struct {
	here    map[netip.Addr]bool
	led     map[front]expose.Back
	cluster func(netip.Addr) bool // a container's: one that was a replica, say
	found   map[expose.Port]netip.AddrPort
}

// look sees to one of the kernel's entries, as it is in a message.
func (s strays) look(entry []byte) {
	at, proto := end(attribute(entry, nl.CTA_TUPLE_ORIG), nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST, nl.CTA_PROTO_DST_PORT)
	if proto != service.UDP && proto != service.TCP || !s.here[at.Addr()] {
		return
	}
	p := front{expose.Port{UDP: proto == service.UDP, Port: at.Port()}, at.Addr().Is6()}
	back, there := s.led[p]
	if !there {
		return
	}
	to, _ := end(attribute(entry, nl.CTA_TUPLE_REPLY), nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC, nl.CTA_PROTO_SRC_PORT)
	// With nobody to lead it to, a connection stays where it went.
	if to.IsValid() && to != at && !slices.Contains(back.Ready, to) && !s.cluster(to.Addr()) {
		s.found[p.Port] = to
	}
}

// end is one of the two ends of a connection, one way, and its protocol; they are zero where the message has none.
func end(tuple []byte, v4, v6, port uint16) (at netip.AddrPort, proto uint8) {
	addrs, numbers := attribute(tuple, nl.CTA_TUPLE_IP), attribute(tuple, nl.CTA_TUPLE_PROTO)
	a, is := netip.AddrFromSlice(attribute(addrs, v4))
	if !is {
		a, is = netip.AddrFromSlice(attribute(addrs, v6))
	}
	kind, n := attribute(numbers, nl.CTA_PROTO_NUM), attribute(numbers, port)
	if !is || len(kind) != 1 || len(n) != 2 {
		return netip.AddrPort{}, 0
	}
	return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(n)), kind[0]
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

// strayed is where connections went that other programs' rules led elsewhere, by ports. The kernel may have a million
// entries, which anybody outside can make: each is looked at as it comes, and none is kept.
func strayed(has table, cluster func(netip.Addr) bool) map[expose.Port]netip.AddrPort {
	s := strays{here: map[netip.Addr]bool{}, led: has.ports, cluster: cluster, found: map[expose.Port]netip.AddrPort{}}
	for _, a := range has.here {
		s.here[a] = true
	}
	ask := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
	ask.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0}) // of both families
	_ = ask.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(m []byte) bool {
		if len(m) >= nl.SizeofNfgenmsg {
			s.look(m[nl.SizeofNfgenmsg:])
		}
		return true
	}) // what cannot be read is not known
	return s.found
}
