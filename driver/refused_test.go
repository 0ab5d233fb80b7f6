package driver

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	dockeripam "github.com/docker/go-plugins-helpers/ipam"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/ipam"
	"github.com/grapevine-net/grapevine/replica"
)

// A network of the cluster that Docker refuses for good, as an engine before 28.0 does one without IPv4, is named after a
// moment, and stands in nothing's way: addresses that nothing has are collected.
func TestRefused(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	e.look()
	_, err := e.rig.ipam.RequestAddress(t.Context(), &dockeripam.RequestAddressRequest{PoolID: ipam.PoolID{Prefix: e.rig.core.local.networks[id].Prefixes[0]}.String()})
	check(t, err) // and Docker ends before it makes the endpoint
	e.write(func(tx *replica.Tx) {
		_ = tx.Put(cluster.Network{Name: "six", VNID: 6})
		_ = tx.Put(cluster.Subnet{Prefix: netip.MustParsePrefix("fd66::/64"), Network: "six", Gateway: netip.MustParseAddr("fd66::1"), Home: self})
	})
	refused := func() {
		t.Helper()
		if _, err := e.rig.mirror.look(t.Context()); err == nil || !strings.Contains(err.Error(), "make network six of the cluster here") {
			t.Fatalf("it is not refused: %v", err)
		}
	}
	refused()
	if list := e.rig.Refused(); len(list) > 0 {
		t.Errorf("named at once: %v", list)
	}
	for range 2 {
		e.rig.now = e.rig.now.Add(2 * time.Minute)
		refused()
	}
	if list := e.rig.Refused(); len(list) != 1 || list[0].Network != "six" || !strings.Contains(list[0].Why, "upgrade it to 28.0 or later") {
		t.Errorf("refused are %v", list)
	}
	if n := len(e.rig.core.alloc.Leases()); n != 0 {
		t.Errorf("%d leases of containers that never were", n)
	}
	e.write(func(tx *replica.Tx) {
		_ = tx.Put(cluster.Subnet{Prefix: netip.MustParsePrefix("10.66.0.0/24"), Network: "six", Gateway: netip.MustParseAddr("10.66.0.1"), Home: self})
	})
	e.look()
	if _, there := e.named("six"); !there || len(e.rig.Refused()) > 0 {
		t.Errorf("with IPv4, it is there: %t, and refused are %v", there, e.rig.Refused())
	}
}
