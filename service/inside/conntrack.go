package inside

import (
	"errors"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/conntrack"
	"github.com/grapevine-net/grapevine/service"
)

// loses reports whether something that connections may have been led to is led to no more.
func loses(from, to service.Table) bool {
	for f, b := range from {
		now, there := to[f]
		if !there {
			return true
		}
		for _, a := range b.To {
			if !slices.Contains(now.To, a) {
				return true
			}
		}
		for _, a := range b.There {
			if !slices.Contains(now.There, a) {
				return true
			}
		}
	}
	return false
}

// forget has the kernel of the calling thread's namespace forget where it has led what is not to go on as it is, of the
// fronts that are about: a datagram would be led where the one before was led, and so would each try to connect. A
// connection of TCP that is open stays with a replica that is there, if it gets no new ones too. One to a replica that is
// gone is led to another one, which ends it: its client hears at once that it is over.
func forget(about func(service.Front) bool, to service.Table) error {
	if n, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count"); err == nil && string(n) == "0\n" {
		return nil // all tables of the host would be gone through
	}
	var errs []error
	for _, f := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		err := conntrack.Forget(f, stale{about, to})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// of are the fronts of addresses of services.
func of(addrs []netip.Addr) func(service.Front) bool {
	ours := map[netip.Addr]bool{}
	for _, a := range addrs {
		ours[a] = true
	}
	return func(f service.Front) bool { return ours[f.Addr] }
}

// stale matches the kernel's entries of what is not to go on as it is.
type stale struct {
	about func(service.Front) bool
	table service.Table
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (s stale) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	front := service.Front{Addr: addrOf(f.Forward.DstIP), Proto: f.Forward.Protocol, Port: f.Forward.DstPort}
	to := netip.AddrPortFrom(addrOf(f.Reverse.SrcIP), f.Reverse.SrcPort)
	if front.Proto == service.ICMP || front.Proto == service.ICMPv6 {
		front.Port, to = 0, netip.AddrPortFrom(to.Addr(), 0)
	}
	if !s.about(front) {
		return false
	}
	back, there := s.table[front]
	switch {
	case slices.Contains(back.To, to):
		return false
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
