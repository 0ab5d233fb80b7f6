package driver

import (
	"maps"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/internal/link"
)

// routes lead from the subnets that an endpoint is in to the network's other ones by the
// gateway, for containers whose default route is on another network or that have none.
func routes(snap *cluster.Snapshot, n localNetwork, e localEndpoint) (out []link.Via) {
	for _, a := range e.addrs() {
		own, gw, _ := n.subnetOf(a)
		if !gw.IsValid() {
			continue
		}
		for _, p := range prefixesOf(snap, n.Name) {
			if p != own && p.Addr().Is4() == gw.Is4() {
				out = append(out, link.Via{Prefix: p, Gateway: gw})
			}
		}
	}
	return out
}

// followSubnets gives running containers the routes to subnets that their networks got
// since they were started: Docker takes routes from Join only. What fails, as long as a
// container is just being started, is tried again.
func (d *Driver) followSubnets(snap *cluster.Snapshot) {
	want := d.wantedRoutes(snap)
	for sandbox, vias := range want {
		if slices.Equal(vias, d.routed[sandbox]) {
			continue
		}
		if err := d.links.Routes(sandbox, vias); err != nil {
			d.cfg.Log.Debug("a container lacks routes to new subnets of its network; tried again", "err", err)
			d.again = true
			continue
		}
		d.routed[sandbox] = vias
	}
	maps.DeleteFunc(d.routed, func(sandbox string, vias []link.Via) bool {
		_, there := want[sandbox]
		return !there || len(vias) == 0
	})
}

// wantedRoutes returns the routes of each sandbox that containers of ours are in.
func (d *Driver) wantedRoutes(snap *cluster.Snapshot) map[string][]link.Via {
	d.mu.Lock()
	defer d.mu.Unlock()
	want := map[string][]link.Via{}
	for _, id := range sortedKeys(d.local.endpoints) {
		e := d.local.endpoints[id]
		if n := d.local.networks[e.Network]; e.Joined && e.Sandbox != "" && n.Conflict == "" {
			want[e.Sandbox] = append(want[e.Sandbox], routes(snap, n, e)...)
		}
	}
	return want
}
