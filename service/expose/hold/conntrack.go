package hold

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/conntrack"
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
		err := conntrack.Forget(f, stale{ours, here, want.ports})
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
	at, proto := conntrack.To(conntrack.Begun(entry))
	if proto != service.UDP && proto != service.TCP || !s.here[at.Addr()] {
		return
	}
	p := front{expose.Port{UDP: proto == service.UDP, Port: at.Port()}, at.Addr().Is6()}
	back, there := s.led[p]
	if !there {
		return
	}
	to, _ := conntrack.From(conntrack.Answered(entry))
	// With nobody to lead it to, a connection stays where it went.
	if to.IsValid() && to != at && !slices.Contains(back.Ready, to) && !s.cluster(to.Addr()) {
		s.found[p.Port] = to
	}
}

// strayed is where connections went that other programs' rules led elsewhere, by ports.
func strayed(has table, cluster func(netip.Addr) bool) map[expose.Port]netip.AddrPort {
	s := strays{here: map[netip.Addr]bool{}, led: has.ports, cluster: cluster, found: map[expose.Port]netip.AddrPort{}}
	for _, a := range has.here {
		s.here[a] = true
	}
	_ = conntrack.Each(unix.AF_UNSPEC, s.look) // what cannot be read is not known
	return s.found
}
