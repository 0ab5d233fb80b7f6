package overlay

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// unheard keeps endpoints from the ranges of hosts that may not have heard who has their addresses now; without hosts, from those of
// all others. It is about networks that reach each other alone.
func (p *planner) unheard(waiting map[string][]cluster.NodeID) {
	if len(waiting) == 0 {
		return
	}
	for _, port := range p.in.Ports {
		hosts, waits := waiting[port.Endpoint]
		if !waits {
			continue
		}
		number := port.Realm.Number(port.VNID)
		ranges := map[bool][]netip.Prefix{} // of IPv4, or not
		for _, s := range p.subnets {
			if other := s.Realm.Number(s.VNID); other != number && other != 0 && number != 0 {
				continue
			}
			is4 := s.Prefix.Addr().Is4()
			if hosts == nil {
				ranges[is4] = append(ranges[is4], s.Prefix)
			}
			for _, host := range hosts {
				ranges[is4] = append(ranges[is4], p.snap.Ring().Owned(host, s.Prefix)...)
			}
		}
		for _, list := range ranges {
			slices.SortFunc(list, comparePrefix)
		}
		for _, a := range port.Addrs {
			if list := slices.Compact(ranges[a.Is4()]); len(list) > 0 {
				p.in.Unheard = append(p.in.Unheard, pipeline.Unheard{Endpoint: port.Endpoint, Addr: a, Ranges: list})
			}
		}
	}
	slices.SortFunc(p.in.Unheard, func(a, b pipeline.Unheard) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Endpoint, b.Endpoint))
	})
}
