package overlay

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

var now = time.Unix(1_800_000_000, 0)

var equalNet = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

func TestPlan(t *testing.T) {
	w := newWorld(t)
	w.hosts()
	w.put(network("blue", 5), cluster.Network{Name: "red", VNID: 6, Internal: true},
		subnet("10.128.0.0/22", "blue", "10.128.0.1"), subnet("10.129.0.0/22", "red", ""))
	blue, red := endpoint(me, 'a', "blue", "10.128.0.7"), endpoint(me, 'b', "red", "10.129.0.7")
	w.put(blue, red, endpoint(me, 'c', "blue", "10.128.0.9"))
	w.by(other, endpoint(other, 'd', "blue", "10.128.2.7"))
	gwMAC := net.HardwareAddr{2, 0, 0, 0, 0, 9}

	in, problems := Plan(w.Snapshot(), me, pipeline.HeaderBits, Ports{
		Tunnel: 1, Gateway: 2, GatewayMAC: gwMAC, Endpoints: map[string]uint32{blue.ID: 11, red.ID: 12},
	})
	want := pipeline.Input{
		VTEP:  addr("192.0.2.1"),
		Round: pipeline.Round, Tunnel: pipeline.HeaderBits, TunnelPort: 1, GatewayPort: 2, GatewayMAC: gwMAC,
		Host: hostAddrs([]cluster.NodeID{me})[me],
		VTEPs: []pipeline.VTEP{
			{Addr: addr("192.0.2.2"), Index: 0xc0000202, Host: hostAddrs([]cluster.NodeID{other})[other]},
			{Addr: addr("192.0.2.3"), Index: 0xc0000203, Host: hostAddrs([]cluster.NodeID{third})[third]},
		},
		Subnets: []pipeline.Subnet{{Prefix: prefix("10.128.0.0/22"), VNID: 5, Gateway: addr("10.128.0.1")}, {Prefix: prefix("10.129.0.0/22"), VNID: 6}},
		Routes: []pipeline.Route{
			{Prefix: prefix("10.128.0.0/22"), VNID: 5}, // our own
			{Prefix: prefix("10.128.2.0/24"), VNID: 5, VTEP: addr("192.0.2.2")},
			{Prefix: prefix("10.128.3.0/24"), VNID: 5, VTEP: addr("192.0.2.3")},
			{Prefix: prefix("10.129.0.0/22"), VNID: 6},
		},
		Ports: []pipeline.Port{
			{OFPort: 11, MAC: macOf('a'), Addrs: blue.Addrs, VNID: 5, Endpoint: blue.ID, Plain: true},
			{OFPort: 12, MAC: macOf('b'), Addrs: red.Addrs, VNID: 6, Internal: true, Endpoint: red.ID, Plain: true},
		},
	}
	if d := cmp.Diff(want, in, equalNet); d != "" || len(problems) != 0 {
		t.Errorf("%v\n%s", problems, d)
	}
	cfg := gatewayOf(w.Snapshot(), in, nil, []netip.Prefix{prefix("10.128.0.0/14"), prefix("10.129.0.0/22")}, 1500)
	if got := fmt.Sprint(cfg.Addrs, cfg.CIDRs, cfg.Remote, cfg.Own, cfg.MTU); got !=
		"[10.128.0.1/22] [10.128.0.0/14 10.128.0.0/22 10.129.0.0/22] [10.128.2.0/24 10.128.3.0/24] [10.128.0.0/22 10.129.0.0/22] 1450" {
		t.Errorf("gateway: %s", got)
	}
	// Only what is in use is routed, and nothing of what this host has already.
	if got := fmt.Sprint(cfg.Subnets); got != "[10.128.0.0/22 10.129.0.0/22]" {
		t.Errorf("routed are %s", got)
	}
	barred := gatewayOf(w.Snapshot(), in, map[netip.Prefix]bool{prefix("10.128.0.0/22"): true}, nil, 1500)
	if got := fmt.Sprint(barred.Addrs, barred.Subnets, barred.CIDRs, barred.Remote, barred.Own); got != "[] [10.129.0.0/22] [10.129.0.0/22] [] [10.129.0.0/22]" {
		t.Errorf("with 10.128.0.0/22 barred: %s", got)
	}
	if len(cfg.Host) != 1 || !cfg.Host[0].Contains(addr("240.0.0.1")) {
		t.Errorf("speaks to containers of other hosts from %v", cfg.Host)
	}
	if cfg := gatewayOf(w.Snapshot(), in, map[netip.Prefix]bool{pipeline.HostRanges[0]: true}, nil, 1500); len(cfg.Host) != 0 {
		t.Errorf("takes %v, where this host has something else", cfg.Host)
	}
}

// TestPlanHostSubnets: only shares of the subnet's length are routed, and parts of
// them; the undivided rest is nobody's.
func TestPlanHostSubnets(t *testing.T) {
	w := newWorld(t)
	w.hosts()
	s := subnet("10.128.0.0/16", "blue", "")
	s.HostBits = 8
	w.put(network("blue", 5), s)
	w.by(other, cluster.Claim{Block: prefix("10.128.2.64/26"), Owner: third})
	in, _ := Plan(w.Snapshot(), me, pipeline.Metadata, Ports{})
	want := []pipeline.Route{
		{Prefix: prefix("10.128.2.0/24"), VNID: 5, VTEP: addr("192.0.2.2")},
		{Prefix: prefix("10.128.2.64/26"), VNID: 5, VTEP: addr("192.0.2.3")},
		{Prefix: prefix("10.128.3.0/24"), VNID: 5, VTEP: addr("192.0.2.3")},
	}
	if d := cmp.Diff(want, in.Routes, equalNet); d != "" {
		t.Error(d)
	}
}

func TestPlanLeavesOutContradictions(t *testing.T) {
	w := newWorld(t)
	w.hosts()
	w.by(third, node(third, addr("192.0.2.1"))) // claims our VTEP
	w.put(network("blue", 5), subnet("10.128.0.0/22", "blue", "10.128.0.1"), subnet("10.140.0.0/22", "unknown", ""))
	ports := map[string]uint32{}
	ofport := uint32(10)
	add := func(e cluster.Endpoint) string {
		w.put(e)
		ofport++
		ports[e.ID] = ofport
		return e.ID
	}
	good := add(endpoint(me, 'a', "blue", "10.128.0.7"))
	bad := map[string]string{
		add(endpoint(me, 'b', "blue", "10.128.0.7")):    "is that of endpoint aaaa",
		add(endpoint(me, 'c', "blue", "10.128.0.1")):    "is that of the gateway",
		add(endpoint(me, 'd', "unknown", "10.140.0.1")): "is not known",
	}
	in, problems := Plan(w.Snapshot(), me, pipeline.HeaderBits, Ports{Endpoints: ports})
	if len(in.Ports) != 1 || in.Ports[0].Endpoint != good || len(in.VTEPs) != 1 || len(in.Subnets) != 1 {
		t.Errorf("planned %+v", in)
	}
	for _, p := range problems {
		if want := bad[p.Key.ID]; want == "" || !strings.Contains(p.Err.Error(), want) {
			t.Errorf("%v: %v, want %q", p.Key, p.Err, want)
		}
		delete(bad, p.Key.ID)
	}
	if len(bad) != 0 {
		t.Errorf("no problem with %v", bad)
	}
}

// TestPlanKeepsNetworksApart: a host that gives a network the VNID of another one does not
// join the two.
func TestPlanKeepsNetworksApart(t *testing.T) {
	w := newWorld(t)
	w.hosts()
	w.put(network("blue", 5), network("red", 6), network("provisional/x", 5), network("one", 0), network("two", 0),
		subnet("10.128.0.0/22", "blue", "10.128.0.1"), subnet("10.129.0.0/22", "red", "10.129.0.1"))
	blue, red := endpoint(me, 'a', "blue", "10.128.0.7"), endpoint(me, 'b', "red", "10.129.0.7")
	w.put(blue, red)
	ports := Ports{Endpoints: map[string]uint32{blue.ID: 11, red.ID: 12}}
	if in, problems := Plan(w.Snapshot(), me, pipeline.HeaderBits, ports); len(in.Ports) != 2 || len(problems) != 0 {
		t.Fatalf("planned %+v, %v", in, problems)
	}
	w.by(third, network("red", 5))
	in, problems := Plan(w.Snapshot(), me, pipeline.HeaderBits, ports)
	if len(in.Ports) != 1 || in.Ports[0].Endpoint != blue.ID || len(in.Subnets) != 1 || len(in.Routes) == 0 {
		t.Errorf("planned %+v", in)
	}
	for _, r := range in.Routes {
		if r.Prefix.Overlaps(prefix("10.129.0.0/22")) {
			t.Errorf("red is reached: %+v", r)
		}
	}
	if len(problems) != 2 || !strings.Contains(fmt.Sprint(problems), "network red has VNID 5, which is that of network blue") {
		t.Errorf("problems %v", problems)
	}
}

// TestPlanCompiles: whatever records gossip brings and takes away, there are flows, and
// those made of what has changed are those made of everything.
func TestPlanCompiles(t *testing.T) {
	reused := 0
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		var again plans
		var compiler pipeline.Compiler
		mode := rapid.SampledFrom([]pipeline.TunnelMode{pipeline.Metadata, pipeline.HeaderBits}).Draw(t, "mode")
		w.put(cluster.Claim{Block: prefix("0.0.0.0/0"), Owner: me})
		ids := []cluster.NodeID{me, other, third}
		names := rapid.SampledFrom([]string{"blue", "red", "green"})
		byte4 := rapid.Uint8Range(0, 7)
		address := func(label string) netip.Addr {
			return netip.AddrFrom4([4]byte{10, 128, byte4.Draw(t, label), byte4.Draw(t, label)})
		}
		block := func(label string) netip.Prefix {
			return netip.PrefixFrom(address(label), rapid.IntRange(16, 32).Draw(t, label+" bits")).Masked()
		}
		ports := Ports{Tunnel: rapid.Uint32Range(0, 1).Draw(t, "tunnel"), Endpoints: map[string]uint32{}}
		look := func() {
			snap, topology := w.Snapshot(), again.topology
			want, problems := Plan(snap, me, mode, ports)
			got, gotProblems := again.plan(snap, me, mode, ports)
			want.Policy.Guards, got.Policy.Guards = withoutEpochs(want.Policy.Guards), withoutEpochs(got.Policy.Guards)
			if d := cmp.Diff(want, got, equalNet); d != "" || fmt.Sprint(problems) != fmt.Sprint(gotProblems) {
				t.Fatalf("%v, want %v\n%s", gotProblems, problems, d)
			}
			if topology == again.topology {
				reused++
			}
			flows, err := pipeline.Compile(want)
			if err != nil {
				t.Fatalf("%v\n%+v", err, want)
			}
			if same, _, err := compiler.Compile(got); err != nil || !slices.Equal(same, flows) {
				t.Fatalf("%v\n%s", err, cmp.Diff(flows, same))
			}
		}
		for i := range rapid.IntRange(0, 25).Draw(t, "records") {
			host := rapid.SampledFrom(ids).Draw(t, "host")
			switch rapid.IntRange(0, 10).Draw(t, "kind") {
			case 9, 10: // of any endpoint, also of another host's, or of one that is to come
				l := cluster.Listen{Endpoint: endpoint(host, byte('a'+rapid.IntRange(0, i).Draw(t, "endpoint")), "", "10.128.0.1").ID, Host: host}
				for _, b := range rapid.SliceOfN(byte4, 0, 2).Draw(t, "groups") {
					l.Groups = append(l.Groups, netip.AddrFrom4([4]byte{239, 1, 1, b}))
				}
				w.by(host, l)
			case 0:
				w.by(host, node(host, netip.AddrFrom4([4]byte{192, 0, 2, 1 + byte4.Draw(t, "vtep")})))
			case 1:
				n := cluster.Network{Name: names.Draw(t, "name"), VNID: rapid.Uint32Range(0, 3).Draw(t, "vnid"), Internal: rapid.Bool().Draw(t, "internal")}
				if rapid.Bool().Draw(t, "multicast") {
					n.Options = map[string]string{cluster.MulticastOption: "on"}
				}
				w.by(host, n)
			case 2:
				s := cluster.Subnet{Prefix: block("subnet"), Network: names.Draw(t, "network")}
				if g := address("gateway"); s.Prefix.Contains(g) {
					s.Gateway = g
				}
				s.HostBits = rapid.Uint8Range(0, uint8(32-s.Prefix.Bits())).Draw(t, "host bits")
				w.by(host, s)
			case 3:
				w.put(cluster.Claim{Block: block("claim"), Owner: rapid.SampledFrom(ids).Draw(t, "owner")})
			case 4:
				e := endpoint(host, byte('a'+i), names.Draw(t, "network"), "10.128.0.1")
				e.Addrs = []netip.Addr{address("address")}
				if rapid.IntRange(0, 2).Draw(t, "IPv6") == 0 {
					e.Addrs = append(e.Addrs, netip.AddrFrom16([16]byte{0: 0xfd, 15: byte4.Draw(t, "address")}))
				}
				for _, b := range rapid.SliceOfN(byte4, 0, 2).Draw(t, "link-local") {
					e.LinkLocal = append(e.LinkLocal, netip.AddrFrom4([4]byte{169, 254, 1, b}), netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 15: b}))
				}
				if e.Labelled = rapid.Bool().Draw(t, "labelled"); e.Labelled {
					e.Labels = map[string]string{"app": rapid.SampledFrom([]string{"web", "db"}).Draw(t, "label")}
				}
				w.by(host, e)
				ports.Endpoints = maps.Clone(ports.Endpoints)
				ports.Endpoints[e.ID] = rapid.Uint32Range(0, 20).Draw(t, "port")
			case 7, 8:
				w.by(host, rapid.SampledFrom(somePolicies).Draw(t, "policy"))
			case 5, 6:
				var keys []cluster.Key
				for r := range w.Snapshot().Records() {
					if r.Version.Node == host && r.Key.Kind != cluster.KindNode {
						keys = append(keys, r.Key)
					}
				}
				if len(keys) > 0 {
					w.end(host, rapid.SampledFrom(keys).Draw(t, "key"))
				}
			}
			if rapid.IntRange(0, 2).Draw(t, "look") > 0 {
				look()
			}
		}
		look()
	})
	if reused == 0 {
		t.Error("nothing was ever made of an earlier plan")
	}
}

// somePolicies are of all kinds, and among them is what cannot be read.
var somePolicies = []cluster.Policy{
	policyOf("p", dbFromWeb), policyOf("p", "{podSelector: {}}"), policyOf("q", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.128.0.0/16}}]}]}"),
	policyOf("q", "{what: {a: newer agent writes}}"),
	{Scope: cluster.ScopeCluster, Name: "c", Text: `apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: c}
spec:
  tier: Admin
  priority: 1
  subject: {namespaces: {}}
  ingress:
  - {action: Pass, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}]}
  - {action: Deny, from: [{namespaces: {}}]}
`},
	{Scope: cluster.ScopeCluster, Name: "c", Text: "newer"},
}

// withoutEpochs is for plans of which one has seen more than the other.
func withoutEpochs(guards []pipeline.Guard) (out []pipeline.Guard) {
	for _, g := range guards {
		if g.Ingress {
			g.IngressEpoch = 1
		}
		if g.Egress {
			g.EgressEpoch = 1
		}
		g.Young = false // what there was before the plan differs
		out = append(out, g)
	}
	return out
}

// TestPlanLinkLocal: link-local addresses are known where their network has one, each
// as one endpoint's.
func TestPlanLinkLocal(t *testing.T) {
	w := newWorld(t)
	w.hosts()
	w.put(network("blue", 5), network("red", 6), network("far", 7))
	with := func(e cluster.Endpoint, addrs ...string) cluster.Endpoint {
		for _, a := range addrs {
			e.LinkLocal = append(e.LinkLocal, addr(a))
		}
		return e
	}
	a, b := with(endpoint(me, 'a', "blue", "10.128.0.7"), "169.254.1.1", "fe80::1"), with(endpoint(me, 'b', "red", "10.129.0.7"), "169.254.1.1")
	late := with(endpoint(me, 'f', "blue", "10.128.0.8"), "169.254.1.1", "169.254.1.6")
	w.put(a, b, late)
	w.by(other, with(endpoint(other, 'c', "blue", "10.128.2.7"), "169.254.1.3", "fe80::3", "169.254.1.1"), with(endpoint(other, 'd', "far", "10.130.0.7"), "169.254.1.4"))
	in, problems := Plan(w.Snapshot(), me, pipeline.HeaderBits, Ports{Endpoints: map[string]uint32{a.ID: 11, b.ID: 12, late.ID: 13}})
	var got []string
	for _, p := range in.Ports {
		got = append(got, fmt.Sprint(p.OFPort, p.LinkLocal))
	}
	for _, n := range in.Neighbours {
		got = append(got, fmt.Sprint(n.VNID, " ", n.Addr, " ", n.VTEP))
	}
	want := []string{
		"11 [169.254.1.1 fe80::1 fe80::42:ff:fe00:61]", "12 [169.254.1.1]", "13 [169.254.1.6]",
		"5 169.254.1.3 192.0.2.2", "5 fe80::3 192.0.2.2", "5 fe80::42:ff:fe00:63 192.0.2.2",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if len(problems) != 1 || !strings.Contains(problems[0].Err.Error(), "its link-local address 169.254.1.1 is that of endpoint "+a.ID) {
		t.Errorf("problems: %v", problems)
	}
}

func TestVTEPs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		addrs := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) netip.Addr {
			if rapid.Bool().Draw(t, "v4") {
				return netip.AddrFrom4([4]byte{192, 0, 2, rapid.Uint8().Draw(t, "v4")})
			}
			return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: rapid.Uint8().Draw(t, "v6")})
		}), 0, 50).Draw(t, "addrs")
		index := map[netip.Addr]uint32{}
		for _, v := range vtepsOf(slices.Clone(addrs)) {
			index[v.Addr] = v.Index
		}
		seen := map[uint32]bool{0: true}
		for a, i := range index {
			if seen[i] {
				t.Fatalf("%s has index %d, which is taken or 0", a, i)
			}
			seen[i] = true
			if a.Is4() && netip.AddrFrom4([4]byte{byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}) != a {
				t.Fatalf("%s has index %#x", a, i)
			}
		}
		for _, a := range addrs {
			if index[a] == 0 {
				t.Fatalf("%s has no index", a)
			}
		}
	})
}

func TestHostAddrs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) cluster.NodeID {
			return cluster.NodeID(fmt.Sprintf("%016x", rapid.Uint64().Draw(t, "id")))
		}), 0, 50).Draw(t, "ids")
		seen := map[netip.Addr]cluster.NodeID{}
		for id, addrs := range hostAddrs(ids) {
			if len(addrs) != 2 || !pipeline.HostRanges[0].Contains(addrs[0]) || !pipeline.HostRanges[1].Contains(addrs[1]) {
				t.Fatalf("%s has %v", id, addrs)
			}
			for _, a := range addrs {
				if twin, twice := seen[a]; twice {
					t.Fatalf("%s and %s have %s", id, twin, a)
				}
				seen[a] = id
			}
		}
	})
	if both := hostAddrs([]cluster.NodeID{"00000000000000aa", "not a host"}); len(both) != 1 {
		t.Errorf("got %v", both)
	}
}

// Between a host that encrypts and one that does not there is no way, whichever of the two this one is.
func TestNoWayInTheClear(t *testing.T) {
	key := bytes.Repeat([]byte{1}, 32)
	at := netip.MustParseAddrPort("192.0.2.1:7948")
	nodes := func(selfEncrypts bool) *cluster.Snapshot {
		s := cluster.New("1111111111111111")
		me := cluster.Node{ID: "1111111111111111", VTEP: netip.MustParseAddr("192.0.2.1")}
		if selfEncrypts {
			me.VTEP, me.WireGuard, me.WireGuardAt = netip.Addr{}, key, at
		}
		if _, _, err := s.Put(me); err != nil {
			t.Fatal(err)
		}
		for _, n := range []cluster.Node{
			{ID: "2222222222222222", VTEP: netip.MustParseAddr("192.0.2.2")},
			{ID: "3333333333333333", WireGuard: key, WireGuardAt: at},
		} {
			other := cluster.New(n.ID)
			r, _, err := other.Put(n)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Merge([]cluster.Record{r}); err != nil {
				t.Fatal(err)
			}
		}
		return s.Snapshot()
	}
	for encrypts, want := range map[bool]string{false: "192.0.2.2", true: "fd67:7261:7065:1:3333:3333:3333:3333"} {
		in, problems := Plan(nodes(encrypts), "1111111111111111", pipeline.Metadata, Ports{})
		if len(in.VTEPs) != 1 || in.VTEPs[0].Addr.String() != want || len(problems) != 1 {
			t.Errorf("encrypts %t: %+v, %v", encrypts, in.VTEPs, problems)
		}
	}
}

// Between hosts that wrap packets in different ways there is no way, nor if the other one's is not known here.
func TestNoWayBetweenEncapsulations(t *testing.T) {
	for _, c := range []struct{ mine, want string }{{"", "192.0.2.2"}, {"geneve", "192.0.2.3"}} {
		w := newWorld(t)
		for i, n := range []struct {
			id    cluster.NodeID
			encap string
		}{{me, c.mine}, {"2222222222222222", ""}, {"3333333333333333", "geneve"}, {"4444444444444444", "srv6"}} {
			one := node(n.id, netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}))
			one.Encap = n.encap
			w.by(n.id, one)
		}
		in, problems := Plan(w.Snapshot(), me, pipeline.Metadata, Ports{})
		if len(in.VTEPs) != 1 || in.VTEPs[0].Addr.String() != c.want || len(problems) != 2 {
			t.Errorf("encapsulation %q: %+v, %v", c.mine, in.VTEPs, problems)
		}
	}
}

// TestClientIsClosed: a client has no way out of its network, whatever that is; what is known of it beside the flows changes
// with it.
func TestClientIsClosed(t *testing.T) {
	w := newWorld(t)
	w.hosts()
	w.put(network("blue", 5), subnet("10.128.0.0/22", "blue", "10.128.0.1"))
	app, laptop := endpoint(me, 'a', "blue", "10.128.0.7"), endpoint(me, 'b', "blue", "10.128.0.8")
	laptop.Client = make([]byte, cluster.WireGuardKeySize)
	w.put(app, laptop)
	m := &plans{}
	look := func(want string) {
		t.Helper()
		in, _ := m.plan(w.Snapshot(), me, pipeline.HeaderBits, Ports{Tunnel: 1, Gateway: 2, Endpoints: map[string]uint32{app.ID: 11, laptop.ID: 12}})
		got := fmt.Sprint(m.closed, w.Snapshot().Closed(me))
		for _, p := range in.Ports {
			got += fmt.Sprint(" ", p.OFPort, p.Internal)
		}
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	look("[10.128.0.8/32] [10.128.0.8/32] 11 false 12 true")
	laptop.Client = nil
	w.put(laptop)
	look("[] [] 11 false 12 false")
}

// TestPlanOfSomeNetworks: a host that is told which networks it reaches has no way to the others, and takes nothing from there.
func TestPlanOfSomeNetworks(t *testing.T) {
	w := newWorld(t)
	w.hosts()
	w.put(network("blue", 5), network("red", 6), subnet("10.128.0.0/22", "blue", "10.128.0.1"), subnet("10.129.0.0/22", "red", "10.129.0.1"))
	w.put(cluster.Claim{Block: prefix("10.129.2.0/24"), Owner: other})
	flows := func(reaches func(string) bool) (to, from int) {
		m := &plans{reaches: reaches}
		in, _ := m.plan(w.Snapshot(), me, pipeline.Metadata, Ports{Tunnel: 1, Gateway: 2, GatewayMAC: net.HardwareAddr{2, 0, 0, 0, 0, 9}})
		list, err := pipeline.Compile(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			if strings.Contains(f.Match, "nw_dst=10.129.") && strings.Contains(f.Actions, "tun_dst") {
				to++
			}
			if strings.Contains(f.Match, "nw_src=10.129.") && strings.Contains(f.Match, "nw_dst="+in.Host[0].String()) {
				from++
			}
		}
		return to, from
	}
	if to, from := flows(nil); to == 0 || from == 0 {
		t.Fatalf("a host with Docker has %d ways to red, and takes %d answers from there", to, from)
	}
	if to, from := flows(func(name string) bool { return name == "red" }); to == 0 || from == 0 {
		t.Errorf("told of red: %d ways there, %d answers", to, from)
	}
	if to, from := flows(func(name string) bool { return name == "blue" }); to+from > 0 {
		t.Errorf("not told of red: %d ways there, %d answers", to, from)
	}
}

// TestQueued: what is said of a network's limits has the fast path leave its containers to the switch, and carry them again.
func TestQueued(t *testing.T) {
	w := newWorld(t)
	w.hosts()
	w.put(network("blue", 5), subnet("10.128.0.0/22", "blue", "10.128.0.1"))
	app := endpoint(me, 'a', "blue", "10.128.0.7")
	w.put(app)
	m := &plans{}
	plain := func(what string, want bool) {
		t.Helper()
		in, _ := m.plan(w.Snapshot(), me, pipeline.HeaderBits, Ports{Tunnel: 1, Gateway: 2, Endpoints: map[string]uint32{app.ID: 11}})
		if len(in.Ports) != 1 || in.Ports[0].Plain != want {
			t.Errorf("%s: %+v", what, in.Ports)
		}
	}
	plain("no limit", true)
	n, _ := cluster.Get[cluster.Network](w.Snapshot(), "blue")
	said := cluster.NetworkLimits{Network: "blue", VNID: n.VNID, Made: n.Made, Options: map[string]string{cluster.OptIngress: "20mbit"}}
	w.put(said)
	plain("a limit", false)
	w.end(me, said.Key())
	plain("none again", true)
}
