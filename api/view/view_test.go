package view

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
)

const (
	one cluster.NodeID = "0000000000000001"
	two cluster.NodeID = "0000000000000002"
)

// snapshot is what host one knows after it has merged what host two wrote.
func snapshot(t *testing.T) *cluster.Snapshot {
	t.Helper()
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	a, b := cluster.New(one), cluster.New(two)
	put(t, a, cluster.Node{ID: one, Name: "host1", VTEP: addr("10.0.0.1"), Gossip: netip.MustParseAddrPort("10.0.0.1:7947"), VXLANPort: 4789, MTU: 1500, Datapath: "userspace"})
	put(t, a, cluster.Claim{Block: prefix("0.0.0.0/0"), Owner: one})
	put(t, a, cluster.Claim{Block: prefix("10.128.2.0/23"), Owner: two})
	put(t, a, cluster.Network{Name: "blue", VNID: 7})
	put(t, a, cluster.Subnet{Prefix: prefix("10.128.0.0/22"), Network: "blue", Gateway: addr("10.128.0.1"), Home: one})
	put(t, a, cluster.Use{Network: "blue", Host: one})
	put(t, b, cluster.Endpoint{
		ID: strings.Repeat("e", 64), Network: "blue", Addrs: []netip.Addr{addr("10.128.2.1")}, MAC: "0a:00:00:00:00:01", Host: two,
		Container: strings.Repeat("c", 64), Name: "db",
	})
	var recs []cluster.Record
	for r := range b.Snapshot().Records() {
		recs = append(recs, r)
	}
	if _, err := a.Merge(recs); err != nil {
		t.Fatal(err)
	}
	return a.Snapshot()
}

func put(t *testing.T, s *cluster.State, body cluster.Body) {
	t.Helper()
	if _, _, err := s.Put(body); err != nil {
		t.Fatal(err)
	}
}

// Where a host tells no ports of SCTP it is said of what rules are asked there, and of nothing else.
func TestExplainSCTP(t *testing.T) {
	addr := netip.MustParseAddr
	for datapath, want := range map[string]int{"userspace": 1, "kernel": 0} {
		a := cluster.New(one)
		put(t, a, cluster.Node{ID: one, Name: "host1", VTEP: addr("10.0.0.1"), Gossip: netip.MustParseAddrPort("10.0.0.1:7947"), VXLANPort: 4789, MTU: 1500, Datapath: datapath, Enforces: 255})
		put(t, a, cluster.Network{Name: "blue", VNID: 7})
		put(t, a, cluster.Subnet{Prefix: netip.MustParsePrefix("10.128.0.0/22"), Network: "blue", Gateway: addr("10.128.0.1"), Home: one})
		put(t, a, cluster.Endpoint{
			ID: strings.Repeat("e", 64), Network: "blue", Addrs: []netip.Addr{addr("10.128.0.2")}, MAC: "0a:00:00:00:00:01", Host: one,
			Container: strings.Repeat("c", 64), Name: "db", Labels: map[string]string{"grapevine.from": "192.0.2.0/24:5/sctp"}, Labelled: true,
		})
		for proto, want := range map[string]int{"sctp": want, "tcp": 0} {
			e, err := Explain(a.Snapshot(), one, nil, api.ExplainRequest{From: "192.0.2.1", To: "db", Port: 5, Proto: proto})
			if err != nil {
				t.Fatal(err)
			}
			got := 0
			for _, n := range e.Notes {
				if strings.Contains(n, "host1 tells no ports of SCTP") {
					got++
				}
			}
			if got != want {
				t.Errorf("%s on the %s datapath: %q", proto, datapath, e.Notes)
			}
		}
	}
}

func TestNodes(t *testing.T) {
	silence := func(cluster.NodeID) (alive, doubtful bool) { return false, false }
	nodes := Nodes(snapshot(t), one, silence)
	if len(nodes) != 1 || nodes[0].Name != "host1" || !nodes[0].Self || !nodes[0].Alive {
		t.Errorf("%+v", nodes)
	}
	nodes = Nodes(snapshot(t), two, silence)
	if nodes[0].Self || nodes[0].Alive {
		t.Errorf("seen from host two, which hears nothing: %+v", nodes)
	}
	doubt := func(cluster.NodeID) (alive, doubtful bool) { return true, true }
	if nodes = Nodes(snapshot(t), two, doubt); !nodes[0].Alive || !nodes[0].Doubtful {
		t.Errorf("in doubt: %+v", nodes)
	}
	if nodes = Nodes(snapshot(t), one, doubt); nodes[0].Doubtful {
		t.Errorf("it doubts itself: %+v", nodes)
	}
}

func TestNetworks(t *testing.T) {
	got := Networks(snapshot(t))
	want := api.Network{
		Name: "blue", VNID: 7, Hosts: []string{"host1"}, Endpoints: 1,
		Subnets: []api.Subnet{{Prefix: netip.MustParsePrefix("10.128.0.0/22"), Gateway: netip.MustParseAddr("10.128.0.1")}},
	}
	if d := cmp.Diff([]api.Network{want}, got, values); d != "" {
		t.Error(d)
	}
}

func TestEndpointOfAHostWithoutARecord(t *testing.T) {
	got := Endpoints(snapshot(t))
	if len(got) != 1 || got[0].Name != "db" || got[0].Host != string(two) {
		t.Errorf("%+v", got)
	}
}

func TestPools(t *testing.T) {
	cidr := netip.MustParsePrefix("10.128.0.0/14")
	pools := Pools(snapshot(t), cidr)
	if len(pools) != 2 || pools[0].Prefix != cidr || pools[0].Network != "" {
		t.Fatalf("%+v", pools)
	}
	want := []api.Share{
		{Host: "host1", Node: string(one), Blocks: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/23")}, Part: 0.5},
		{Host: string(two), Node: string(two), Blocks: []netip.Prefix{netip.MustParsePrefix("10.128.2.0/23")}, Part: 0.5},
	}
	if d := cmp.Diff(want, pools[1].Shares, values); d != "" {
		t.Error(d)
	}
	for _, p := range pools {
		var sum float64
		for _, s := range p.Shares {
			sum += s.Part
		}
		if sum != 1 {
			t.Errorf("the parts of %s add up to %f", p.Prefix, sum)
		}
	}
}

// TestPartsOfIPv6: a /49 and two /50 are a half and two quarters.
func TestPartsOfIPv6(t *testing.T) {
	s := cluster.New(one)
	for _, c := range []cluster.Claim{{Block: netip.MustParsePrefix("fd00::/48"), Owner: one}, {Block: netip.MustParsePrefix("fd00:0:0:8000::/50"), Owner: two}, {Block: netip.MustParsePrefix("fd00:0:0:c000::/50"), Owner: "00000000000000cc"}} {
		if _, _, err := s.Put(c); err != nil {
			t.Fatal(err)
		}
	}
	var parts []float64
	for _, share := range Pools(s.Snapshot(), netip.MustParsePrefix("fd00::/48"))[0].Shares {
		parts = append(parts, share.Part)
	}
	if want := []float64{0.5, 0.25, 0.25}; !slices.Equal(parts, want) {
		t.Errorf("the parts are %v, want %v", parts, want)
	}
}

func TestNothingIsAnEmptyList(t *testing.T) {
	s := cluster.New(one).Snapshot()
	none := func(cluster.NodeID) (alive, doubtful bool) { return false, false }
	if Nodes(s, one, none) == nil || Networks(s) == nil || Endpoints(s) == nil || Pools(s) == nil {
		t.Error("a list is nil: it would be null in JSON")
	}
	if p := Pools(s, netip.MustParsePrefix("10.0.0.0/8")); len(p[0].Shares) != 0 {
		t.Errorf("an empty ring has owners: %+v", p)
	}
}

var values = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

func TestAlive(t *testing.T) {
	alive, tried := Alive([]api.Node{{Self: true, Alive: true}, {Alive: true, Path: "ok"}, {Alive: true}, {Alive: true, Path: "nothing arrives"}, {Path: "ok"}})
	if alive != (api.Count{Part: 4, All: 5}) || tried != (api.Count{Part: 1, All: 3}) {
		t.Errorf("%+v alive, %+v tried", alive, tried)
	}
}
