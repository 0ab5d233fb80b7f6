package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Via is a route to a prefix by a gateway.
type Via struct {
	Prefix  netip.Prefix
	Gateway netip.Addr
}

// viaProtocol marks our routes in containers (rtm_protocol, see rtnetlink(7)), so that
// they are told from those that Docker or the container itself made.
const viaProtocol = netlink.RouteProtocol(0x67)

// RoutesIn makes vias, and no others, our routes in the network namespace that the file
// ns is. Those that others made for one of the prefixes are replaced. Until the file is
// a namespace, or the gateway's interface is there, it fails.
func RoutesIn(ns string, vias []Via) error {
	if err := routesIn(ns, vias); err != nil {
		return fmt.Errorf("set routes in %s: %w", ns, err)
	}
	return nil
}

func routesIn(ns string, vias []Via) error {
	f, err := os.Open(ns)
	if err != nil {
		return err
	}
	defer f.Close()
	h, err := netlink.NewHandleAt(netns.NsHandle(f.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	missing := map[Via]bool{}
	for _, v := range vias {
		missing[v] = true
	}
	old, err := Dump(func() (list []netlink.Route, err error) {
		err = h.RouteListFilteredIter(netlink.FAMILY_ALL, &netlink.Route{Protocol: viaProtocol}, netlink.RT_FILTER_PROTOCOL, func(r netlink.Route) bool {
			list = append(list, r)
			return len(list) <= muchInside
		})
		return list, err
	})
	if err != nil {
		return err
	}
	if len(old) > muchInside {
		return fmt.Errorf("routes of protocol %d, which is the agent's: %w", viaProtocol, errMuch)
	}
	var errs []error
	for _, r := range old {
		if v, ok := viaOf(r); ok && missing[v] {
			delete(missing, v)
		} else if err := h.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, err)
		}
	}
	for v := range missing {
		dst := net.IPNet{IP: v.Prefix.Addr().AsSlice(), Mask: net.CIDRMask(v.Prefix.Bits(), v.Prefix.Addr().BitLen())}
		r := netlink.Route{Dst: &dst, Gw: v.Gateway.AsSlice(), Protocol: viaProtocol}
		if err := h.RouteReplace(&r); err != nil {
			errs = append(errs, fmt.Errorf("%s via %s: %w", v.Prefix, v.Gateway, err))
		}
	}
	return errors.Join(errs...)
}

func viaOf(r netlink.Route) (Via, bool) {
	dst, ok := destination(r)
	gw, valid := netip.AddrFromSlice(r.Gw)
	return Via{dst, gw.Unmap()}, ok && valid
}

// destination returns where a route leads to, if that is a prefix of its own.
func destination(r netlink.Route) (netip.Prefix, bool) {
	if r.Dst == nil {
		return netip.Prefix{}, false
	}
	ip, ok := netip.AddrFromSlice(r.Dst.IP)
	ones, _ := r.Dst.Mask.Size()
	ip = ip.Unmap()
	return netip.PrefixFrom(ip, ones), ok && ones > 0 && !ip.IsLinkLocalUnicast() && !ip.IsMulticast()
}
