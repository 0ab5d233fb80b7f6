package plane

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/host/link"
)

// vxlanSource is this host's address that its VXLAN packets are sent from: the VTEP or, behind
// NAT, the one that becomes it.
func (c Config) vxlanSource() netip.Addr {
	if own := c.wire().Addr.Unmap(); c.Secure.All() || !c.Settings.Bind.IsValid() || hasAddress(own) {
		return own
	}
	return c.Settings.Bind.Unmap()
}

// hasAddress says whether an address is this host's.
func hasAddress(addr netip.Addr) bool {
	_, err := link.FindUnderlay(link.Want{Addr: addr})
	return err == nil
}

// WrongSources says of which hosts the kernel sends packets for containers with another source than
// this host's VTEP, by which the others know it: they drop them. The kernel is asked, if it is it
// that chooses.
func (p *Plane) WrongSources(nodes []api.Node) []api.Problem {
	own := p.cfg.wire().Addr
	if !p.choosesSource() || !hasAddress(own) {
		return nil // behind NAT it is not this host's, or it is gone
	}
	var vteps []netip.Addr
	name := map[netip.Addr]string{}
	for _, n := range nodes {
		if !n.Self && n.VTEP.Is4() == own.Is4() && n.VTEP.IsValid() {
			vteps = append(vteps, n.VTEP)
			name[n.VTEP] = cmp.Or(n.Name, n.ID)
		}
	}
	var list []api.Problem
	for _, w := range sourcesOf(vteps, own) {
		also := ""
		if w.more > 0 {
			also = fmt.Sprintf(" and %s", words.Plural(w.more, "more host"))
		}
		list = append(list, api.Problem{
			Code: api.EncapSource,
			What: fmt.Sprintf("%s packets to host %s%s leave this host with the source %s, and not with its VTEP %s: the others drop them", p.cfg.Settings.Encapsulation().Title, name[w.to], also, w.from, own),
			Do:   fmt.Sprintf("`%s`, or set GRAPEVINE_ADVERTISE=%s on this host", w.command(own), w.from),
		})
	}
	return list
}

// wrongSource is the way to a host, and so to some more, on which the kernel takes another
// source.
type wrongSource struct {
	to, from, via netip.Addr
	dev           string
	more          int
}

func (w wrongSource) command(own netip.Addr) string {
	via := ""
	if w.via.IsValid() {
		via = " via " + w.via.String()
	}
	return fmt.Sprintf("ip route replace %s%s dev %s src %s", w.to, via, w.dev, own)
}

// sourcesOf are the sources that the kernel chooses to the VTEPs, but for own, each once.
func sourcesOf(vteps []netip.Addr, own netip.Addr) (list []wrongSource) {
	for _, to := range vteps {
		routes, err := netlink.RouteGet(to.AsSlice())
		if err != nil || len(routes) == 0 {
			continue
		}
		from, ok := netip.AddrFromSlice(routes[0].Src)
		if from = from.Unmap(); !ok || from == own {
			continue
		}
		if i := slices.IndexFunc(list, func(w wrongSource) bool { return w.from == from }); i >= 0 {
			list[i].more++
			continue
		}
		via, _ := netip.AddrFromSlice(routes[0].Gw)
		list = append(list, wrongSource{to: to, from: from, via: via.Unmap(), dev: link.Name(routes[0].LinkIndex)})
	}
	return list
}
