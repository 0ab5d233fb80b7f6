package nat

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/conntrack"
)

// protocols that have no end of a connection that conntrack sees for sure: what it
// remembers of one lives on while a client goes on sending.
var protocols = map[string]uint8{"udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP}

// forget makes conntrack forget flows that were not led to a port that is published now,
// and those that still are to one that is not any more. Without its netlink interface
// (the module nf_conntrack_netlink) they end by their own timeouts: no error.
func forget(added, removed []Published) error {
	f := filter{added: lasting(added), removed: lasting(removed)}
	if len(f.added)+len(f.removed) == 0 {
		return nil
	}
	var err error
	if f.local, err = localAddrs(); err != nil {
		return err
	}
	for family := range families4and6(append(f.added, f.removed...)) {
		err := conntrack.Forget(family, f)
		if err != nil && !errors.Is(err, unix.EPROTONOSUPPORT) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
	}
	return nil
}

// localAddrs are this host's addresses.
func localAddrs() (map[netip.Addr]bool, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list this host's addresses: %w", err)
	}
	local := map[netip.Addr]bool{}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			local[p.Addr().Unmap()] = true
		}
	}
	return local, nil
}

func lasting(all []Published) (out []Published) {
	for _, p := range all {
		if protocols[p.Proto] != 0 {
			out = append(out, p)
		}
	}
	return out
}

func families4and6(all []Published) map[netlink.InetFamily]bool {
	out := map[netlink.InetFamily]bool{}
	for _, p := range all {
		if p.To.Addr().Is4() {
			out[unix.AF_INET] = true
		} else {
			out[unix.AF_INET6] = true
		}
	}
	return out
}

// filter matches the flows to forget.
type filter struct {
	added, removed []Published
	local          map[netip.Addr]bool // addresses of this host
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (f filter) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	to, answers := tuple(flow.Forward.DstIP, flow.Forward.DstPort), tuple(flow.Reverse.SrcIP, flow.Reverse.SrcPort)
	proto := flow.Forward.Protocol
	for _, p := range f.added {
		// To the port, and not led to the container.
		nth := to.Port() - p.Host.Port()
		if protocols[p.Proto] == proto && to.Port() >= p.Host.Port() && nth <= p.More && answers != netip.AddrPortFrom(p.To.Addr(), p.To.Port()+nth) &&
			(to.Addr() == p.Host.Addr() || p.Host.Addr().IsUnspecified() && f.local[to.Addr()]) {
			return true
		}
	}
	for _, p := range f.removed {
		if protocols[p.Proto] == proto && answers.Addr() == p.To.Addr() && answers.Port() >= p.To.Port() && answers.Port()-p.To.Port() <= p.More && to != answers {
			return true
		}
	}
	return false
}

func tuple(ip net.IP, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}
