package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
)

// read returns what gv0 has, but for what the kernel put there by itself.
func read(l netlink.Link) (config, error) {
	c := newConfig()
	addrs, err := link.Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_ALL) })
	if err != nil {
		return c, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			c.addrs[ip.Unmap()] = true
		}
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		ours := &netlink.Route{LinkIndex: l.Attrs().Index, Table: Table}
		routes, err := link.Dump(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, ours, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return c, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range routes {
			if r.Protocol == unix.RTPROT_KERNEL || r.Dst == nil {
				continue
			}
			dst, _ := netip.AddrFromSlice(r.Dst.IP)
			src, _ := netip.AddrFromSlice(r.Src)
			ones, _ := r.Dst.Mask.Size()
			c.routes[netip.PrefixFrom(dst.Unmap(), ones)] = via{src.Unmap(), r.MTU}
		}
	}
	return c, nil
}

// address is a as a host address. It brings no route of its own, and no duplicate
// address detection (RFC 4862, 5.4): every host has the gateways'. This host's own has
// a narrower scope: only the routes that name it use it, and masquerading does not.
func address(a netip.Addr, own bool) *netlink.Addr {
	n := &netlink.Addr{
		IPNet: ipNet(netip.PrefixFrom(a, a.BitLen())),
		Flags: unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_NODAD,
	}
	if own && a.Is4() {
		n.Scope = int(netlink.SCOPE_LINK)
	}
	return n
}

func (r route) netlink(l netlink.Link) *netlink.Route {
	n := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNet(r.dst), Table: Table, Protocol: unix.RTPROT_STATIC}
	if r.dst.Addr().Is4() {
		n.Scope = netlink.SCOPE_LINK
	}
	// Locked: what lies behind has this MTU whatever the kernel hears of it, and older
	// kernels heed it for packets they forward only then (net.ipv4.ip_forward_use_pmtu).
	n.MTU, n.MTULock = r.mtu, r.mtu != 0
	if r.dst.Addr().IsLoopback() {
		n.Type = unix.RTN_LOCAL
	}
	if r.src.IsValid() {
		n.Src = r.src.AsSlice()
	}
	return n
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// sysctl is a file under /proc/sys/net and its value, of the namespace of the thread.
type sysctl struct{ path, value string }

// sysctls are what gv0 needs of its own.
func sysctls(v6 bool) []sysctl {
	all := []sysctl{
		// Loose (RFC 3704, 2.4): the way back may be another one.
		{"ipv4/conf/" + Port + "/rp_filter", "2"},
		// Answer for gv0's addresses only, not for those of the host's other interfaces.
		{"ipv4/conf/" + Port + "/arp_ignore", "1"},
		{"ipv4/conf/" + Port + "/send_redirects", "0"},
		// Connections of 127.0.0.1 to published ports leave here and come back. What
		// containers send to 127.0.0.0/8 the switch drops.
		{"ipv4/conf/" + Port + "/route_localnet", "1"},
	}
	if v6 {
		all = append(all,
			sysctl{"ipv6/conf/" + Port + "/accept_ra", "0"},
			sysctl{"ipv6/conf/" + Port + "/disable_ipv6", "0"},
		)
	}
	return all
}

// forwards are the switches of gv0's own forwarding, which begins as "default" has it, that may
// have been turned off; turned on only after the host's, which sets all of them.
func forwards(v6 bool) []sysctl {
	all := []sysctl{{"ipv4/conf/" + Port + "/forwarding", "1"}}
	if v6 {
		all = append(all, sysctl{"ipv6/conf/" + Port + "/forwarding", "1"})
	}
	return all
}

// setSysctls sets what gv0 needs.
func (g *Gateway) setSysctls(v6 bool) error {
	for _, s := range sysctls(v6) {
		if err := s.set(); err != nil {
			return err
		}
	}
	if g.Edge {
		return nil
	}
	if err := g.forward(v6); err != nil {
		return err
	}
	for _, s := range forwards(v6) {
		if err := s.set(); err != nil {
			return err
		}
	}
	return nil
}

func hostHasIPv6() bool {
	_, err := os.Stat("/proc/sys/net/ipv6/conf/all/forwarding")
	return err == nil
}

// learning are the interfaces that learn routes from router advertisements only while this host
// does not forward packets: by default it is a router then, and has none that it did not
// configure (accept_ra in the kernel's Documentation/networking/ip-sysctl.rst).
func learning() (names []string, err error) {
	files, err := filepath.Glob("/proc/sys/net/ipv6/conf/*/accept_ra")
	for _, f := range files {
		text, err := os.ReadFile(f)
		if name := filepath.Base(filepath.Dir(f)); err == nil && string(bytes.TrimSpace(text)) == "1" && name != Port {
			names = append(names, name)
		}
	}
	return names, err
}

// acceptRA is whether an interface learns from routers: 1, if this host is none; 2, always.
func acceptRA(name, value string) sysctl { return sysctl{"ipv6/conf/" + name + "/accept_ra", value} }

// Unlearn undoes for interfaces what Ensure did so that they go on learning from routers.
func Unlearn(names []string) error {
	var errs []error
	for _, name := range names {
		have, err := os.ReadFile("/proc/sys/net/" + acceptRA(name, "").path)
		if err == nil && string(bytes.TrimSpace(have)) == "2" { // else it is gone, or somebody has set it
			errs = append(errs, acceptRA(name, "1").set())
		}
	}
	return errors.Join(errs...)
}

// set writes the value unless it is there: /proc/sys may be read-only for us.
func (s sysctl) set() error {
	file := "/proc/sys/net/" + s.path
	have, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read sysctl: %w", err)
	}
	if string(bytes.TrimSpace(have)) == s.value {
		return nil
	}
	if err := os.WriteFile(file, []byte(s.value), 0o644); err != nil {
		return fmt.Errorf("set sysctl to %s (set it on the host if the agent may not): %w", s.value, err)
	}
	return nil
}
