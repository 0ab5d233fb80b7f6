package driver

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link"
)

// routes lead from the subnets that an endpoint is in to the network's other ones by the
// gateway, for containers whose default route is on another network or that have none.
func routes(snap *cluster.Snapshot, n localNetwork, e localEndpoint) []link.Via {
	return routesTo(prefixesOf(snap, n.Name), n, e)
}

func routesTo(prefixes []netip.Prefix, n localNetwork, e localEndpoint) (out []link.Via) {
	for _, a := range e.addrs() {
		own, gw, _ := n.subnetOf(a)
		if !gw.IsValid() {
			continue
		}
		for _, p := range prefixes {
			if p != own && p.Addr().Is4() == gw.Is4() {
				out = append(out, link.Via{Prefix: p, Gateway: gw})
			}
		}
	}
	return out
}

// privileged lead from a container that is on internal networks only, and so has no default
// route, to other networks that its own reach: those that reach all, and those that one of its own is one with. It is
// by the first of its endpoints that reaches a network, since there is one route to a prefix. Whoever has a default
// route of ours has the way already; a second one would change the address that others see him by.
func (l *local) privileged(met func(network string) []cluster.Subnet, sandbox string) (out []link.Via) {
	var endpoints []localEndpoint
	own := map[string]bool{}
	for _, id := range sortedKeys(l.endpoints) {
		e := l.endpoints[id]
		if e.Sandbox != sandbox || sandbox == "" || !e.Joined {
			continue
		}
		n := l.networks[e.Network]
		if !n.Internal || n.Conflict != "" {
			return nil
		}
		endpoints, own[n.Name] = append(endpoints, e), true
	}
	there := map[netip.Prefix]bool{}
	for _, e := range endpoints {
		n := l.networks[e.Network]
		var prefixes []netip.Prefix
		for _, s := range met(n.Name) {
			if !own[s.Network] && !there[s.Prefix] {
				prefixes = append(prefixes, s.Prefix)
			}
		}
		for _, via := range routesTo(prefixes, n, e) {
			out, there[via.Prefix] = append(out, via), true
		}
	}
	return out
}

// metBy are the subnets of the other networks that a network reaches, found once for each network that is asked for.
func metBy(snap *cluster.Snapshot) func(network string) []cluster.Subnet {
	realms := snap.Realms()
	known := map[string][]cluster.Subnet{}
	find := func(network string) (out []cluster.Subnet) {
		from, ok := cluster.Get[cluster.Network](snap, network)
		if !ok {
			return nil
		}
		for s := range cluster.All[cluster.Subnet](snap) {
			to, ok := cluster.Get[cluster.Network](snap, s.Network)
			if ok && to.Name != network && !to.Provisional() && realms.Meet(from, to) {
				out = append(out, s)
			}
		}
		return out
	}
	return func(network string) []cluster.Subnet {
		list, ok := known[network]
		if !ok {
			list = find(network)
			known[network] = list
		}
		return list
	}
}

// settling is how long Docker takes, mostly, from Join to setting the routes of its reply. It fails if one of them is there
// already: those nobody else sets, however long it takes.
const settling = 2 * time.Second

// followSubnets gives running containers the routes to subnets that their networks got
// since they were started: Docker takes routes from Join only. What fails, as long as a
// container is just being started, is tried again.
func (d *mirror) followSubnets(snap *cluster.Snapshot) {
	want, young := d.wantedRoutes(snap)
	for sandbox, vias := range want {
		if sameRoutes(vias, d.routed[sandbox]) {
			continue
		}
		if young[sandbox] {
			d.core.again = true
			continue
		}
		ours := slices.DeleteFunc(slices.Clone(vias), func(v link.Via) bool { return slices.Contains(d.dockers[sandbox], v) })
		if err := d.core.links.Routes(sandbox, ours); err != nil {
			d.core.cfg.Log.Debug("a container lacks routes to new subnets of its network; tried again", "err", err)
			d.core.again = true
			continue
		}
		d.routed[sandbox] = vias
	}
	maps.DeleteFunc(d.routed, func(sandbox string, vias []link.Via) bool {
		_, there := want[sandbox]
		return !there || len(vias) == 0
	})
	maps.DeleteFunc(d.dockers, func(sandbox string, _ []link.Via) bool {
		_, there := want[sandbox]
		return !there
	})
}

// sameRoutes reports whether two lists have the same routes, none of them twice.
func sameRoutes(a, b []link.Via) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(v link.Via) bool { return !slices.Contains(b, v) })
}

// wantedRoutes returns the routes of each sandbox that containers of ours are in, and which
// of these Docker may still be setting routes in. It takes over into d.routed and d.dockers what
// Docker was told to set.
func (d *mirror) wantedRoutes(snap *cluster.Snapshot) (want map[string][]link.Via, young map[string]bool) {
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	want, young = map[string][]link.Via{}, map[string]bool{}
	for _, id := range sortedKeys(d.core.local.endpoints) {
		e := d.core.local.endpoints[id]
		if n := d.core.local.networks[e.Network]; e.Joined && e.Sandbox != "" && n.Conflict == "" {
			want[e.Sandbox] = append(want[e.Sandbox], routes(snap, n, e)...)
			young[e.Sandbox] = young[e.Sandbox] || d.core.cfg.Now().Sub(e.Created) < settling
			d.routed[e.Sandbox] = append(d.routed[e.Sandbox], d.core.told[id]...)
			d.dockers[e.Sandbox] = append(d.dockers[e.Sandbox], d.core.told[id]...)
			delete(d.core.told, id)
		}
	}
	met := metBy(snap)
	for sandbox := range want {
		want[sandbox] = append(want[sandbox], d.core.local.privileged(met, sandbox)...)
	}
	return want, young
}
