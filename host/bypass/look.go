package bypass

import (
	"bytes"
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/ipsec"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/nft"
)

// look reads what the host does with t in the namespace of the calling thread, and judges it. ours is the name of the
// program at the NIC that is not looked at.
func look(t Traffic, ours string) error {
	if err := unheard(t, ours); err != nil {
		return err
	}
	return new(fine).heard(t)
}

// fine is of which rules it is known that nothing of some traffic would be missed. The kernel has a number that is another one after
// each change of any rule: to read all of them is most of what a look takes. A reason against is looked for anew: a table goes with
// the program that owns it, and the number stays.
type fine struct {
	is         bool
	generation uint32
	traffic    Traffic
}

// heard is of what the kernel tells of.
func (f *fine) heard(t Traffic) error {
	nic, err := netlink.LinkByName(t.Device)
	if err != nil {
		return fmt.Errorf("interface %s: %w", t.Device, err)
	}
	t.Stacked = Stacked(nic)
	for _, against := range []func() error{
		func() error { return filtered(t) },
		func() error { return atRoutes(t, nic) },
		func() error { return byDefault() },
	} {
		if err := against(); err != nil {
			return err
		}
	}
	conn, err := nft.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	if f.is && f.traffic.equal(t) {
		if now, err := conn.Generation(); err == nil && now == f.generation {
			return nil
		}
	}
	f.is = false
	rules, err := conn.Ruleset(unix.NFPROTO_IPV4, nft.Inet, familyNetdev)
	if err != nil {
		return fmt.Errorf("read the rules of nftables: %w", err)
	}
	if err := listed(conn, rules); err != nil {
		return err
	}
	if err := Judge(rules, t); err != nil {
		return err
	}
	*f = fine{true, rules.Generation, t}
	return nil
}

// Stacked reports whether an interface stands on others, such as a bond or a VLAN does: what arrives there may have got a mark
// below. Between namespaces a veth takes marks away, within one it does not.
func Stacked(l netlink.Link) bool {
	return l.Type() != "device" && (l.Type() != "veth" || l.Attrs().NetNsID < 0)
}

// unheard is of what the kernel tells no news: it is looked at again and again, and has to be cheap.
func unheard(t Traffic, ours string) error {
	if err := legacyRules(); err != nil {
		return err
	}
	if err := balanced(); err != nil {
		return err
	}
	if err := hooked(t); err != nil {
		return err
	}
	what, err := link.StackPrograms()
	if err == nil && what != "" {
		err = errors.New(what)
	}
	if err == nil {
		what, err = link.ProgramsBeside(t.Index, ours)
		if err == nil && what != "" {
			err = fmt.Errorf("%s looks at what arrives at %s", what, t.Device)
		}
	}
	if err == nil {
		what, err = link.ProgramsAt(t.TunnelIndex) // gv_tunnel is none of tcx's
		if err == nil && what != "" {
			err = fmt.Errorf("%s looks at what arrives at %s", what, t.Tunnel)
		}
	}
	if err == nil {
		what, err = link.ProgramsBehind(t.TunnelIndex)
		if err == nil && what != "" {
			err = fmt.Errorf("%s looks at what leaves by %s", what, t.Tunnel)
		}
	}
	return err
}

// filtered is of what tc(8) has put there.
func filtered(t Traffic) error {
	what, err := link.FiltersBeside(t.Device)
	if err == nil && what != "" {
		err = fmt.Errorf("%s looks at what arrives at %s", what, t.Device)
	}
	if err == nil {
		what, err = link.FiltersBehind(t.Tunnel)
		if err == nil && what != "" {
			err = fmt.Errorf("%s looks at what leaves by %s", what, t.Tunnel)
		}
	}
	return err
}

// byDefault is of IPsec's default. Its policies are looked at by who makes packets direct.
func byDefault() error {
	blocks, err := ipsec.Blocks()
	if err == nil && blocks {
		err = errors.New("IPsec drops what no policy is for (ip xfrm policy getdefault)")
	}
	return err
}

// balanced is of IPVS, which takes packets for its services before and behind iptables' rules.
func balanced() error {
	const header = 3 // lines
	text, err := begin("ip_vs")
	if err != nil {
		return err
	}
	if bytes.Count(text, []byte("\n")) > header {
		return errors.New("IPVS has services on this host")
	}
	return nil
}

// begin is the beginning of a file of the namespace's; nothing if it is not there.
func begin(name string) ([]byte, error) {
	fd, err := unix.Open("/proc/thread-self/net/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0) // as link.ReadAgain does
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at this host's network: %w", err)
	}
	defer unix.Close(fd)
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(fd, buf)
	}
	if err != nil {
		return nil, fmt.Errorf("look at this host's network: %w", err)
	}
	return buf[:n], nil
}

// atRoutes is of the way that packets take in: whether the host takes them for its own, by the NIC, with rp_filter as it
// is. The kernel is asked, which goes the whole way. How they leave is asked of each packet by the program itself.
func atRoutes(t Traffic, nic netlink.Link) error {
	if master := nic.Attrs().MasterIndex; master != 0 {
		return fmt.Errorf("%s belongs to another interface (%s), such as a VRF", t.Device, link.NameOf(master))
	}
	rules, err := link.Dump(func() ([]netlink.Rule, error) { return netlink.RuleList(netlink.FAMILY_V4) })
	if err != nil {
		return fmt.Errorf("read the rules of routes: %w", err)
	}
	for _, r := range rules {
		if r.Sport != nil || r.Dport != nil || r.IPProto != 0 || r.Tos != 0 {
			return fmt.Errorf("the rule %d of routes (ip rule) asks for ports, protocols or TOS", r.Priority)
		}
		if t.Stacked && (r.Mark != 0 || r.Mask != nil) {
			return fmt.Errorf("the rule %d of routes (ip rule) asks for a mark, which what arrives at %s may have got below it", r.Priority, t.Device)
		}
	}
	for _, p := range t.Peers {
		routes, err := netlink.RouteGetWithOptions(net.IP(t.Own.AsSlice()), &netlink.RouteGetOptions{IifIndex: t.Index, SrcAddr: net.IP(p.AsSlice())})
		if err != nil || len(routes) == 0 {
			return fmt.Errorf("this host takes no packets from %s by %s (ip route get %s from %s iif %s; rp_filter, or a route): %w", p, t.Device, t.Own, p, t.Device, err)
		}
		if kind := routes[0].Type; kind != unix.RTN_LOCAL {
			return fmt.Errorf("packets from %s by %s are not for this host (ip route get %s from %s iif %s)", p, t.Device, t.Own, p, t.Device)
		}
	}
	return nil
}
