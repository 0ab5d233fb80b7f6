package plane

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/overlay"
)

// strangers says of clients of this host's ports whether they are a container of an internal network,
// of grapevine's by its address or of Docker's by its bridge: these have no way to them. Subnets are
// looked up once for each state of the cluster.
func strangers(source overlay.Source, self cluster.NodeID, closed func(index int) bool) func(from netip.Addr, index int) bool {
	var mu sync.Mutex
	var rev uint64
	var subnets []netip.Prefix
	return func(from netip.Addr, index int) bool {
		if closed(index) {
			return true
		}
		snap := source.Snapshot()
		mu.Lock()
		defer mu.Unlock()
		if snap.Rev() != rev {
			rev, subnets = snap.Rev(), snap.Closed(self)
		}
		return slices.ContainsFunc(subnets, func(p netip.Prefix) bool { return p.Contains(from) })
	}
}
