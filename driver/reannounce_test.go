package driver

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

// TestSubnetComesBackWhole: a subnet that another host ended, and that is used here, is
// announced again with all that was said of it: its host subnets, range and reserved addresses.
func TestSubnetComesBackWhole(t *testing.T) {
	e := newEngine(t)
	p := netip.MustParsePrefix("10.99.0.0/24")
	whole := cluster.Subnet{
		Prefix: p, Gateway: p.Addr().Next(), HostBits: 5, Range: netip.MustParsePrefix("10.99.0.64/26"),
		Aux: map[string]netip.Addr{"printer": netip.MustParseAddr("10.99.0.70")},
	}
	e.write(func(tx *replica.Tx) {
		_ = tx.Put(cluster.Network{Name: "red", VNID: 7})
		whole.Network, whole.Home = "red", "00000000000000bb"
		_ = tx.Put(whole)
	})
	e.look() // the network appears here
	if _, made := e.named("red"); !made {
		t.Fatal("the network did not appear")
	}
	e.write(func(tx *replica.Tx) { retire(tx, "red") })
	check(t, e.rig.Reannounce(p))
	got, live := cluster.Get[cluster.Subnet](e.rig.replica.Snapshot(), p.String())
	if !live || got.HostBits != whole.HostBits || got.Range != whole.Range || !maps.Equal(got.Aux, whole.Aux) || got.Gateway != whole.Gateway {
		t.Errorf("the subnet came back as %+v, was %+v", got, whole)
	}
}
