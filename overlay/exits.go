package overlay

import (
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/egress"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// exitsOf are the ways to the outside of networks that have an egress: by its holder, wherever that is, or none.
// ready says whether this host is, of those that it holds; track, whether the switch tracks connections.
func exitsOf(snap *cluster.Snapshot, self cluster.NodeID, g *ground, ready func(name string) bool, track bool) (list []pipeline.Exit) {
	for _, e := range egress.All(snap) {
		h, _ := cluster.Get[cluster.EgressHolder](snap, e.Name)
		exit := pipeline.Exit{Track: track, V4: e.Addr(false).IsValid(), V6: e.Addr(true).IsValid()}
		switch vtep := g.vtep[h.Host]; {
		case e.Twice: // the address is another one's
		case h.Host == self:
			exit.Here = ready != nil && ready(e.Name)
		case vtep.IsValid():
			i := slices.IndexFunc(g.vteps, func(v pipeline.VTEP) bool { return v.Addr == vtep })
			exit.VTEP, exit.Index = vtep, g.vteps[i].Index
		}
		for _, name := range e.Networks {
			if n, ok := g.network[name]; ok && n.VNID != 0 && !slices.Contains(e.Taken, name) {
				way := exit
				if way.VNID = n.VNID; n.Encrypted() { // the way to the gateway would be in the clear
					way.VTEP, way.Index = netip.Addr{}, 0
				}
				list = append(list, way)
			}
		}
	}
	return list
}
