package bgp_test

import (
	"fmt"
	"net/netip"

	"github.com/grapevine-net/grapevine/bgp"
	"github.com/grapevine-net/grapevine/cluster"
)

// A host is to tell routers of network blue, of network vault, and of an address. What cannot be told is named, with what to do.
func ExampleCase_Plan() {
	const self = cluster.NodeID("0000000000000001")
	state := cluster.New(self)
	for _, r := range []cluster.Body{
		cluster.Network{Name: "blue", VNID: 7},
		cluster.Network{Name: "vault", VNID: 8, Internal: true},
		cluster.Endpoint{ID: "app", Network: "blue", Host: self, Addrs: []netip.Addr{netip.MustParseAddr("10.128.0.2")}},
	} {
		if _, _, err := state.Put(r); err != nil {
			fmt.Println(err)
			return
		}
	}
	lo := netip.MustParseAddr("203.0.113.1")
	routes, wrong := bgp.Case{
		Self: self, Snap: state.Snapshot(), Networks: []string{"blue", "vault"}, Addresses: []netip.Addr{lo},
		Serves: func(string) bool { return false }, Has: func(a netip.Addr) bool { return a == lo },
	}.Plan()
	for _, r := range routes {
		fmt.Println(r.Prefix, "for", r.For)
	}
	for _, w := range wrong {
		fmt.Println(w.What)
	}
	// Output:
	// 10.128.0.2/32 for network blue
	// 203.0.113.1/32 for this host's address
	// routers are to be told of network vault, and are not: it is internal, and has no outside
}
