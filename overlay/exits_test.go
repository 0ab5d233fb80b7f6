package overlay

import (
	"net/netip"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica/replicatest"
)

// TestExitsOf: to a holder whose agent is too old to hold an IPv6 address nothing is sent by IPv6: it would leave there
// with an address that nobody holds.
func TestExitsOf(t *testing.T) {
	const self, holder = cluster.NodeID("0000000000000001"), cluster.NodeID("0000000000000002")
	for _, able := range []bool{true, false} {
		r := replicatest.New(t, self,
			cluster.Node{ID: self, Name: "host1", VTEP: addr("192.0.2.1"), HoldsIPv6: true}, cluster.Network{Name: "blue", VNID: 5},
			cluster.Egress{Name: "mail", Networks: []string{"blue"}, Addrs: []netip.Addr{addr("192.0.2.25"), addr("2001:db8::25")}},
			cluster.EgressHolder{Egress: "mail", Host: holder})
		replicatest.Hear(t, r, holder, cluster.Node{ID: holder, Name: "host2", VTEP: addr("192.0.2.2"), HoldsIPv6: able})
		snap := r.Snapshot()
		exits := exitsOf(snap, self, newGround(snap, self, false, nil, nil, nil), nil, true)
		if len(exits) != 1 || !exits[0].V4 || exits[0].V6 != able || exits[0].VTEP != addr("192.0.2.2") {
			t.Errorf("the holder holds IPv6: %v; %+v", able, exits)
		}
	}
}
