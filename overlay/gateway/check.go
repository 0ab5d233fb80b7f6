package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
)

// IsRule reports whether a routing rule of that table or priority may be ours.
func IsRule(of, at int) bool {
	return slices.ContainsFunc(pairs, func(p pair) bool { return of == p.table || at == p.priority })
}

// IsTable reports whether a routing table is ours.
func IsTable(t int) bool { return slices.Contains(Tables(), t) }

// Missing says what Ensure(cfg) would set, for people, and sets nothing: another program
// has changed it. What cannot be looked at is left out.
func (g *Gateway) Missing(cfg Config) []string {
	list := g.missing(cfg)
	for _, what := range g.Nowhere.missing() {
		if !slices.Contains(list, what) { // a rule is said by both
			list = append(list, what)
		}
	}
	return list
}

func (g *Gateway) missing(cfg Config) []string {
	want, _, err := wanted(cfg, g.mac)
	if err != nil {
		return nil
	}
	l, err := netlink.LinkByName(Port)
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone {
		return []string{fmt.Sprintf("the interface %s, by which containers reach this host and the outside, is gone", Port)}
	}
	if err != nil {
		return nil
	}
	if stranger := (*link.StrangerError)(nil); errors.As(link.Stranger(Port), &stranger) {
		return []string{stranger.Error()}
	}
	list := append(g.deviceMissing(l, cfg.MTU), g.wrongSysctls(want.hasV6())...)
	list = append(list, missingRules(want.hasV6())...)
	have, err := read(l)
	if err != nil {
		return list
	}
	d := difference(have, want)
	list = append(list, several("%s has not the address %v", d.addAddrs)...)
	// The kernel may have given it a link-local one of its own before it was told not to.
	d.removeAddrs = slices.DeleteFunc(d.removeAddrs, netip.Addr.IsLinkLocalUnicast)
	list = append(list, several("%s has the address %v, which is none of grapevine's", d.removeAddrs)...)
	list = append(list, several(fmt.Sprintf("the routing table %d of %%s has no route to %%v", Table), d.addRoutes)...)
	return append(list, several(fmt.Sprintf("the routing table %d of %%s has the route %%v, which is none of grapevine's", Table), d.removeRoutes)...)
}

// WrongSwitches is the part of Missing of which the kernel does not tell (sysctls).
func (g *Gateway) WrongSwitches(cfg Config) []string {
	want, _, err := wanted(cfg, g.mac)
	if err != nil || link.Stranger(Port) != nil {
		return nil
	}
	return g.wrongSysctls(want.hasV6())
}

// helds are the files of the switches, as they are looked at again and again.
type helds struct {
	mu  sync.Mutex
	all map[string]*link.Held
}

func (h *helds) of(path string) *link.Held {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = map[string]*link.Held{}
	}
	f := h.all[path]
	if f == nil {
		f = link.NewHeld("/proc/sys/net/" + path)
		h.all[path] = f
	}
	return f
}

func several[T any](format string, list []T) []string {
	if len(list) == 0 {
		return nil
	}
	text := fmt.Sprintf(format, Port, list[0])
	if more := len(list) - 1; more > 0 {
		text += fmt.Sprintf(" (and so for %d more)", more)
	}
	return []string{text}
}

func (g *Gateway) deviceMissing(l netlink.Link, mtu int) (list []string) {
	a := l.Attrs()
	if a.Flags&net.FlagUp == 0 {
		list = append(list, fmt.Sprintf("the interface %s is down", Port))
	}
	if !bytes.Equal(a.HardwareAddr, g.mac) {
		list = append(list, fmt.Sprintf("the interface %s has the MAC address %s instead of %s", Port, a.HardwareAddr, g.mac))
	}
	if a.MTU != mtu {
		list = append(list, fmt.Sprintf("the interface %s has the MTU %d instead of %d", Port, a.MTU, mtu))
	}
	return list
}

// wrongSysctls are those that have another value than they need. One that is not there is
// none: gv0 may be about to go.
func (g *Gateway) wrongSysctls(v6 bool) (list []string) {
	all := sysctls(v6)
	if !g.Edge {
		all = append(append([]sysctl{forwarding4}, all...), forwards(v6)...)
	}
	if v6 && !g.Edge {
		all = append(all, forwarding6)
	}
	for _, s := range all {
		have, err := g.held.of(s.path).Read()
		if text := string(bytes.TrimSpace(have)); err == nil && text != s.value {
			list = append(list, fmt.Sprintf("net.%s is %s instead of %s", strings.ReplaceAll(s.path, "/", "."), text, s.value))
		}
	}
	return list
}

func missingRules(v6 bool) (list []string) {
	for family, name := range map[int]string{unix.AF_INET: "ip rule", unix.AF_INET6: "ip -6 rule"} {
		if family == unix.AF_INET6 && !v6 {
			continue
		}
		list = append(list, missingRule(family, name, pairs[0])...)
	}
	return list
}

func missingRule(family int, name string, p pair) []string {
	have, err := rulesOf(family, p)
	if err != nil || len(have) > 0 {
		return nil
	}
	return []string{fmt.Sprintf("the routing rule %d, which leads to table %d, is gone (%s)", p.priority, p.table, name)}
}
