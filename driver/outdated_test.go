package driver

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	dockernet "github.com/docker/docker/api/types/network"
	dockeripam "github.com/docker/go-plugins-helpers/ipam"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/ipam"
	"github.com/grapevine-net/grapevine/replica"
)

const elsewhere = cluster.NodeID("00000000000000bb")

var oldRed, newRed = netip.MustParsePrefix("10.9.0.0/24"), netip.MustParsePrefix("10.8.0.0/24")

// anew is what another host tells when a user removes red there and makes it anew in the same moment.
func (e *engine) anew(change func(*cluster.Network, *cluster.Subnet)) {
	e.t.Helper()
	e.write(func(tx *replica.Tx) {
		n := e.record("red")
		s, _ := cluster.Get[cluster.Subnet](tx.Snapshot(), oldRed.String())
		retire(tx, "red")
		n.Made, s.Network, s.Home = "elsewhere", "red", elsewhere
		change(&n, &s)
		_ = tx.Put(n)
		_ = tx.Put(s)
	})
}

func otherSubnet(_ *cluster.Network, s *cluster.Subnet) {
	*s = cluster.Subnet{Prefix: newRed, Network: "red", Gateway: netip.MustParseAddr("10.8.0.1"), Home: elsewhere}
}

// A gateway that nobody said, and that is now said aloud, is what engines list: the replica follows. It does not
// where an engine lists one that nobody said.
func TestGatewayIsSaidAloud(t *testing.T) {
	e := newEngine(t)
	e.write(func(tx *replica.Tx) {
		_ = tx.Put(cluster.Network{Name: "red", VNID: 7})
		_ = tx.Put(cluster.Subnet{Prefix: oldRed, Network: "red", Gateway: netip.MustParseAddr("10.9.0.1"), Home: elsewhere, Implied: true})
	})
	e.look()
	was, _ := e.named("red")
	if c := was.IPAM.Config[0]; c.Gateway != "" {
		t.Fatalf("it was made as %+v", c)
	}
	e.anew(func(_ *cluster.Network, s *cluster.Subnet) { s.Implied = false })
	e.look()
	e.look()
	said, _ := e.named("red")
	if c := said.IPAM.Config[0]; said.ID == was.ID || c.Gateway != "10.9.0.1" {
		t.Errorf("it is %+v, %v", c, said.ID == was.ID)
	}
	e.anew(func(_ *cluster.Network, s *cluster.Subnet) { s.Implied = true })
	e.look()
	e.look()
	if is, _ := e.named("red"); is.ID != said.ID || len(e.rig.Outdated()) > 0 {
		t.Errorf("it is %+v, and said to be outdated: %v", is, e.rig.Outdated())
	}
}

// Who removes a network elsewhere may not have heard of the subnet that it was just made anew with here: that
// one goes with this host's network, be it the user or the agent who removes that.
func TestRemovedUnheard(t *testing.T) {
	for _, users := range []bool{false, true} {
		e := newEngine(t)
		_, err := e.create(dockernet.CreateRequest{Name: "red", CreateOptions: dockernet.CreateOptions{
			IPAM: &dockernet.IPAM{Config: []dockernet.IPAMConfig{{Subnet: oldRed.String()}}},
		}})
		check(t, err)
		e.look()
		e.write(func(tx *replica.Tx) { tx.Delete(cluster.Network{Name: "red"}.Key()) })
		if is, _ := e.named("red"); users {
			e.remove(is.ID)
		}
		e.look()
		e.look()
		if _, there := e.named("red"); there {
			t.Errorf("by user %v: it is still here", users)
		}
		if s, live := cluster.Get[cluster.Subnet](e.rig.replica.Snapshot(), oldRed.String()); live {
			t.Errorf("by user %v: left is %+v", users, s)
		}
	}
}

// What nothing is on is made anew at once, whatever has changed; and once.
func TestMadeAnewElsewhere(t *testing.T) {
	for what, change := range map[string]func(*cluster.Network, *cluster.Subnet){
		"subnet":  otherSubnet,
		"gateway": func(_ *cluster.Network, s *cluster.Subnet) { s.Gateway = netip.MustParseAddr("10.9.0.9") },
		"range":   func(_ *cluster.Network, s *cluster.Subnet) { s.Range = netip.MustParsePrefix("10.9.0.128/26") },
		"reserved": func(_ *cluster.Network, s *cluster.Subnet) {
			s.Aux = map[string]netip.Addr{"nas": netip.MustParseAddr("10.9.0.7")}
		},
		"label":      func(n *cluster.Network, _ *cluster.Subnet) { n.Labels = map[string]string{"l": "other"} },
		"no labels":  func(n *cluster.Network, _ *cluster.Subnet) { n.Labels = nil },
		"option":     func(n *cluster.Network, _ *cluster.Subnet) { n.Options = map[string]string{"mtu": "1300"} },
		"attachable": func(n *cluster.Network, _ *cluster.Subnet) { n.Attachable = true },
		"internal":   func(n *cluster.Network, _ *cluster.Subnet) { n.Internal = true },
	} {
		for _, users := range []bool{false, true} { // who made it here
			t.Run(fmt.Sprintf("%s by user %v", what, users), func(t *testing.T) {
				e := newEngine(t)
				if users {
					_, err := e.create(dockernet.CreateRequest{Name: "red", CreateOptions: dockernet.CreateOptions{
						Labels: map[string]string{"l": "v"}, Options: map[string]string{"mtu": "1400"},
						IPAM: &dockernet.IPAM{Config: []dockernet.IPAMConfig{{Subnet: "10.9.0.0/24", Gateway: "10.9.0.5", IPRange: "10.9.0.64/26"}}},
					}})
					check(t, err)
				} else {
					e.red(false)
				}
				e.look()
				e.look()
				was, _ := e.named("red")
				e.anew(change)
				e.look()
				e.look()
				is, there := e.named("red")
				if !there || users && (what == "range" || what == "reserved") {
					return // a user's part of a network may have its own
				}
				if is.ID == was.ID {
					t.Fatalf("it is the old one: %+v", is)
				}
				rec := e.record("red")
				s, _ := cluster.Get[cluster.Subnet](e.rig.replica.Snapshot(), is.IPAM.Config[0].Subnet)
				if c := is.IPAM.Config[0]; s.Network != "red" || c.Gateway != s.Gateway.String() || is.Labels["l"] != rec.Labels["l"] || is.Internal != rec.Internal || is.Attachable != rec.Attachable || is.Options["mtu"] != rec.Options["mtu"] {
					t.Errorf("it is %+v of %+v in %+v", is, s, rec)
				}
				for range 3 {
					e.look()
				}
				if !e.rig.Here()["red"] {
					t.Error("it is not said to be here")
				}
				if again, _ := e.named("red"); again.ID != is.ID || len(e.rig.Outdated()) > 0 {
					t.Errorf("it was made again and again, or is named: %v", e.rig.Outdated())
				}
			})
		}
	}
}

// With a container on it, it stays, its subnet with it, and says so. It goes with the container.
func TestMadeAnewWhileUsedHere(t *testing.T) {
	e := newEngine(t)
	e.red(false)
	e.look()
	was, _ := e.named("red")
	ep := e.run(was.ID, "web")
	e.look()
	e.anew(otherSubnet)
	e.look()
	e.look()
	want := []string{
		"network red vnid 7", "subnet 10.8.0.0/24 of red gateway 10.8.0.1", "subnet 10.9.0.0/24 of red gateway 10.9.0.5",
		fmt.Sprintf("endpoint %.12s on red [10.9.0.1] 02:42:0a:09:00:01 web", ep), "use red/" + string(self),
	}
	e.want(want...)
	if rec, _ := cluster.Get[cluster.Endpoint](e.rig.replica.Snapshot(), ep); !rec.Outdated || !slices.Equal(e.record("red").Old, []netip.Prefix{oldRed}) {
		t.Errorf("the others are not told: %+v, %+v", rec, e.record("red"))
	}
	list := e.rig.Outdated()
	if len(list) != 1 || list[0].Network != "red" || !slices.Equal(list[0].Containers, []string{"web"}) || !strings.Contains(list[0].Why, "10.9.0.0/24") {
		t.Errorf("outdated: %+v", list)
	}
	e.stop(was.ID, "web", ep) // and is still there: it may be started again
	e.look()
	e.look()
	e.want("network red vnid 7", "subnet 10.8.0.0/24 of red gateway 10.8.0.1", "use red/"+string(self))
	ep = e.run(was.ID, "web")
	e.look()
	if got := e.rig.records(); !strings.Contains(got, "subnet 10.9.0.0/24 of red") || !strings.Contains(got, "on red [10.9.0.2]") {
		t.Errorf("started again:\n%s", got)
	}
	e.stop(was.ID, "web", ep)
	e.rm("web")
	for range 3 {
		e.look()
	}
	e.want("network red vnid 7", "subnet 10.8.0.0/24 of red gateway 10.8.0.1")
	if is, _ := e.named("red"); is.IPAM.Config[0].Subnet != "10.8.0.0/24" || len(e.rig.Outdated()) > 0 {
		t.Errorf("docker has %+v, and %v", is.IPAM, e.rig.Outdated())
	}
}

// The first container does not bring back the subnet that was removed.
func TestFirstContainerOnWhatIsReplaced(t *testing.T) {
	e := newEngine(t)
	e.red(false)
	e.look()
	e.anew(otherSubnet)
	if e.rig.Here()["red"] {
		t.Error("what is to be replaced is said to be here")
	}
	_, err := e.rig.ipam.RequestAddress(context.Background(), &dockeripam.RequestAddressRequest{PoolID: ipam.PoolID{Prefix: oldRed}.String()})
	if err == nil || !strings.Contains(err.Error(), "network red was made anew on another host") || !strings.Contains(err.Error(), "try again") {
		t.Errorf("an address of it: %v", err)
	}
	e.want("network red vnid 7", "subnet 10.8.0.0/24 of red gateway 10.8.0.1")
}

// Where the agent makes nothing in Docker it is named, also if nothing is on it.
func TestMadeAnewWithoutReplication(t *testing.T) {
	e := newEngine(t)
	e.rig.core.cfg.Replicate = false
	id := e.user("red")
	e.look()
	e.write(func(tx *replica.Tx) {
		n := e.record("red")
		retire(tx, "red")
		n.Made = "elsewhere"
		_ = tx.Put(n)
		_ = tx.Put(cluster.Subnet{Prefix: newRed, Network: "red", Gateway: netip.MustParseAddr("10.8.0.1"), Home: elsewhere})
	})
	e.look()
	if list := e.rig.Outdated(); len(list) != 1 || len(list[0].Containers) != 0 {
		t.Errorf("outdated: %+v", list)
	}
	if _, there := e.networks[id]; !there {
		t.Error("it was removed")
	}
}

// One that Docker lists otherwise than it was made is not made again and again.
func TestMadeAnewOnce(t *testing.T) {
	e := newEngine(t)
	e.red(false)
	e.look()
	e.anew(func(n *cluster.Network, _ *cluster.Subnet) { n.Labels = map[string]string{"l": "other"} })
	for range 5 {
		e.look()
		if n, there := e.named("red"); there {
			n.Labels = map[string]string{"engine": "added"}
			e.networks[n.ID] = n
		}
	}
	e.look()
	if list := e.rig.Outdated(); e.made != 2 || len(list) != 1 {
		t.Errorf("made %d times; outdated: %v", e.made, list)
	}
}

// Two hosts make a network at the same moment, with subnets of their own and other labels for one
// reason or another: what is part of it stays as it is.
func TestMadeTogetherIsNotOutdated(t *testing.T) {
	e := newEngine(t)
	id := e.user("red")
	e.look()
	e.write(func(tx *replica.Tx) {
		n := e.record("red")
		n.Made = "elsewhere"
		_ = tx.Put(n)
		_ = tx.Put(cluster.Subnet{Prefix: newRed, Network: "red", Gateway: netip.MustParseAddr("10.8.0.1"), Home: elsewhere})
	})
	e.look()
	e.look()
	if _, there := e.networks[id]; !there || len(e.rig.Outdated()) > 0 {
		t.Errorf("it was replaced, or is named: %v", e.rig.Outdated())
	}
}

// The user makes it anew here while a container elsewhere has an address of it: its subnet stays
// until that one goes, and no other one.
func TestMadeAnewWhileUsedElsewhere(t *testing.T) {
	e := newEngine(t)
	e.red(false)
	e.look()
	other := cluster.Endpoint{ID: "e", Network: "red", Addrs: []netip.Addr{netip.MustParseAddr("10.9.0.70")}, Host: elsewhere}
	use := cluster.Use{Network: "red", Host: elsewhere}
	recs := []cluster.Record{
		{Key: other.Key(), Version: cluster.Version{Counter: 100, Node: elsewhere}, Body: other},
		{Key: use.Key(), Version: cluster.Version{Counter: 101, Node: elsewhere}, Prev: 100, Body: use},
	}
	_, err := e.rig.replica.Merge(cluster.Encode(recs))
	check(t, err)
	six := netip.MustParsePrefix("fd00:1::/64")
	e.write(func(tx *replica.Tx) { _ = tx.Put(cluster.Subnet{Prefix: six, Network: "red", Home: self}) })
	n, _ := e.named("red")
	e.remove(n.ID)
	_, err = e.create(dockernet.CreateRequest{Name: "red", CreateOptions: dockernet.CreateOptions{
		IPAM: &dockernet.IPAM{Config: []dockernet.IPAMConfig{{Subnet: "10.8.0.0/24"}}},
	}})
	check(t, err)
	e.look()
	e.look()
	e.want("network red vnid 7", "subnet 10.8.0.0/24 of red gateway 10.8.0.1", "subnet 10.9.0.0/24 of red gateway 10.9.0.5",
		"endpoint e on red [10.9.0.70]", "use red/"+string(elsewhere))
	if rec := e.record("red"); len(rec.Labels) != 0 || rec.Made == "" || !slices.Equal(rec.Old, []netip.Prefix{oldRed}) {
		t.Errorf("it is %+v", rec)
	}
	recs[0].Version.Counter, recs[0].Prev, recs[0].Body, recs[0].Deleted = 200, 101, nil, 1
	recs[1].Version.Counter, recs[1].Prev, recs[1].Body, recs[1].Deleted = 201, 200, nil, 1
	_, err = e.rig.replica.Merge(cluster.Encode(recs))
	check(t, err)
	e.look()
	e.want("network red vnid 7", "subnet 10.8.0.0/24 of red gateway 10.8.0.1")
}

// Taken down and made anew here, with no subnet said, as Compose does it, while another host has
// containers on it: it is the same network, and its subnet stays; and that does not add one each time.
func TestDownAndUpWhileUsedElsewhere(t *testing.T) {
	e := newEngine(t)
	id := e.user("red")
	e.look()
	first, _ := cluster.Get[cluster.Subnet](e.rig.replica.Snapshot(), "10.128.0.0/22")
	other := cluster.Endpoint{ID: "e", Network: "red", Addrs: []netip.Addr{first.Prefix.Addr().Next().Next()}, Host: elsewhere}
	use := cluster.Use{Network: "red", Host: elsewhere}
	_, err := e.rig.replica.Merge(cluster.Encode([]cluster.Record{
		{Key: other.Key(), Version: cluster.Version{Counter: 100, Node: elsewhere}, Body: other},
		{Key: use.Key(), Version: cluster.Version{Counter: 101, Node: elsewhere}, Prev: 100, Body: use},
	}))
	check(t, err)
	for range 3 {
		e.remove(id)
		e.look()
		id = e.user("red")
		e.look()
	}
	var subnets []netip.Prefix
	for s := range cluster.All[cluster.Subnet](e.rig.replica.Snapshot()) {
		subnets = append(subnets, s.Prefix)
	}
	if rec := e.record("red"); rec.Removed || rec.Labels["a"] != "b" || len(rec.Old) != 0 || len(subnets) != 2 || !slices.Contains(subnets, first.Prefix) {
		t.Errorf("it is %+v with %v", rec, subnets)
	}
	// What the other host has of it is as good.
	replica := localNetwork{ID: "r", Name: "red", Learnt: true, Replica: true, Prefixes: []netip.Prefix{first.Prefix}, Gateways: []netip.Addr{first.Gateway}}
	dn := docker.Network{ID: "r", Name: "red", Labels: map[string]string{"a": "b"}, Pools: []docker.IPAM{poolOf(first)}}
	if why := (view{snap: e.rig.replica.Snapshot()}).differs(e.record("red"), replica, dn); why != "" {
		t.Errorf("another host's is outdated: %s", why)
	}
}

// A network's record may come to a host before what the subnets' own say of their order.
func TestPlacesComeLater(t *testing.T) {
	e := newEngine(t)
	first, second := netip.MustParsePrefix("10.97.4.0/24"), netip.MustParsePrefix("10.97.0.0/24")
	e.write(func(tx *replica.Tx) {
		_ = tx.Put(cluster.Network{Name: "two", VNID: 7, Made: "elsewhere"})
		_ = tx.Put(cluster.Subnet{Prefix: first, Network: "two", Gateway: first.Addr().Next(), Home: elsewhere, Implied: true})
		_ = tx.Put(cluster.Subnet{Prefix: second, Network: "two", Gateway: second.Addr().Next(), Home: elsewhere, Implied: true})
	})
	pools := func() (list []string) {
		n, _ := e.named("two")
		for _, c := range n.IPAM.Config {
			list = append(list, c.Subnet)
		}
		return list
	}
	e.look()
	e.look()
	e.write(func(tx *replica.Tx) {
		_ = tx.Put(cluster.Subnet{Prefix: second, Network: "two", Gateway: second.Addr().Next(), Home: elsewhere, Implied: true, Place: 1})
	})
	for range 3 {
		e.look()
	}
	if got := pools(); !slices.Equal(got, []string{first.String(), second.String()}) {
		t.Errorf("the subnets are %v", got)
	}
	made := e.ids("two")
	e.look()
	if again := e.ids("two"); !slices.Equal(again, made) {
		t.Errorf("made again and again: %v, then %v", made, again)
	}
}
