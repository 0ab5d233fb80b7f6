package overlay

import (
	"net/netip"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// TestRealmsInPlan: what is said of networks is in every object of theirs, in a plan made anew and in one that follows.
func TestRealmsInPlan(t *testing.T) {
	s := cluster.New("00000000000000aa")
	put := func(b cluster.Body) {
		t.Helper()
		if _, _, err := s.Put(b); err != nil {
			t.Fatal(err)
		}
	}
	put(cluster.Node{ID: s.Self(), Name: "host1", VTEP: netip.MustParseAddr("192.0.2.1")})
	ports := Ports{Tunnel: 1, Endpoints: map[string]uint32{}}
	for i, name := range []string{"a", "b", "c"} {
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i), 0}), 24)
		put(cluster.Network{Name: name, VNID: uint32(7 - i)})
		put(cluster.Subnet{Network: name, Prefix: prefix})
		put(cluster.Claim{Block: prefix, Owner: s.Self()})
		put(cluster.Endpoint{ID: "e" + name, Network: name, Host: s.Self(), MAC: "02:00:00:00:00:01", Addrs: []netip.Addr{prefix.Addr().Next()}})
		ports.Endpoints["e"+name] = uint32(i + 3)
	}
	var follow plans
	check := func(what string, want map[uint32]pipeline.Realm) {
		t.Helper()
		snap := s.Snapshot()
		whole, problems := Plan(snap, s.Self(), pipeline.HeaderBits, ports)
		next, _ := follow.plan(snap, s.Self(), pipeline.HeaderBits, ports)
		if len(problems) > 0 || len(whole.Ports) != 3 || len(whole.Routes) != 3 || len(whole.Subnets) != 3 {
			t.Fatalf("%s: %+v, %v", what, whole, problems)
		}
		for _, in := range []pipeline.Input{whole, next} {
			for _, x := range in.Subnets {
				if x.Realm != want[x.VNID] {
					t.Errorf("%s: %+v, want realm %d", what, x, want[x.VNID])
				}
			}
			for _, x := range in.Routes {
				if x.Realm != want[x.VNID] {
					t.Errorf("%s: %+v, want realm %d", what, x, want[x.VNID])
				}
			}
			for _, x := range in.Ports {
				if x.Realm != want[x.VNID] {
					t.Errorf("%s: %+v, want realm %d", what, x, want[x.VNID])
				}
			}
		}
	}
	check("at first", nil)
	put(cluster.Realm{Network: "a", VNID: 7, With: "x"})
	put(cluster.Realm{Network: "c", VNID: 5, With: "x"})
	check("two", map[uint32]pipeline.Realm{7: 5, 5: 5})
	put(cluster.Realm{Network: "b", VNID: 6, Global: true})
	check("the other one global", map[uint32]pipeline.Realm{7: 5, 5: 5, 6: pipeline.Everywhere})
	put(cluster.Realm{Network: "c", VNID: 5})
	check("parted", map[uint32]pipeline.Realm{6: pipeline.Everywhere})
}
