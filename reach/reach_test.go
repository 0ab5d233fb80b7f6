package reach

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
)

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, t := range texts {
		list = append(list, netip.MustParsePrefix(t))
	}
	return list
}

// The judge, case by case: what a host has, a subnet of the cluster, and whether it can be
// taken there. The cluster's ranges are 10.128.0.0/14 and fd12:3456:789a::/48.
func TestJudge(t *testing.T) {
	cidrs := prefixes("10.128.0.0/14", "fd12:3456:789a::/48")
	addr := func(p, dev string) Facts { return Facts{Addrs: []Addr{{netip.MustParsePrefix(p), dev}}} }
	route := func(p, dev, via string) Facts {
		r := Route{Prefix: netip.MustParsePrefix(p), Dev: dev}
		if via == "link" {
			r.OnLink = true
		} else if via != "" {
			r.Via = netip.MustParseAddr(via)
		}
		return Facts{Routes: []Route{r}}
	}
	drop := func(p string) Facts {
		return Facts{Routes: []Route{{Prefix: netip.MustParsePrefix(p), Drops: true}}}
	}
	docker := func(kind Kind, p, name string) Facts {
		return Facts{Docker: []Thing{{netip.MustParsePrefix(p), kind, name}}}
	}
	for _, c := range []struct {
		name   string
		facts  Facts
		subnet string
		by     string // "": the host takes it
	}{
		{"a LAN", addr("192.168.7.1/24", "lan0"), "192.168.7.0/24", "192.168.7.0/24 on lan0"},
		{"another LAN", addr("192.168.7.1/24", "lan0"), "192.168.8.0/24", ""},
		{"a LAN around the subnet", addr("192.168.7.1/16", "lan0"), "192.168.8.0/24", "192.168.0.0/16 on lan0"},
		{"a LAN within the subnet", addr("192.168.7.1/24", "lan0"), "192.168.0.0/16", "192.168.7.0/24 on lan0"},
		{"a LAN around the cluster's range", addr("10.1.2.3/8", "eth0"), "10.128.0.0/22", "10.0.0.0/8 on eth0"},
		{"an address as in clouds", addr("10.128.0.2/32", "ens4"), "10.128.0.0/22", "10.128.0.2/32 on ens4"},
		{"an address as in clouds, elsewhere", addr("10.128.0.2/32", "ens4"), "10.128.4.0/22", ""},
		{"the router of a cloud", route("10.128.0.1/32", "ens4", "link"), "10.128.0.0/22", "10.128.0.1/32 on ens4"},
		{"IPv6", addr("fd12:3456:789a:7::5/64", "lan0"), "fd12:3456:789a:7::/64", "fd12:3456:789a:7::/64 on lan0"},
		{"IPv6, elsewhere", addr("fd12:3456:789a:7::5/64", "lan0"), "fd12:3456:789a:8::/64", ""},

		{"the default route", route("0.0.0.0/0", "eth0", "192.0.2.1"), "198.51.100.0/24", ""},
		{"a default route in halves", route("0.0.0.0/1", "tun0", "10.8.0.1"), "10.128.0.0/22", ""},
		{"the other half", route("128.0.0.0/1", "tun0", "10.8.0.1"), "172.30.0.0/16", ""},
		{"all that is not private, of a VPN", route("8.0.0.0/7", "wg0", ""), "8.8.0.0/24", ""},
		{"IPv6's global addresses", route("2000::/3", "wg0", ""), "2001:db8::/64", ""},

		{"a wide route around the cluster's range", route("10.0.0.0/8", "eth0", "192.0.2.254"), "10.128.0.0/22", ""},
		{"the same, of a tunnel", route("10.0.0.0/8", "wg0", ""), "10.129.0.0/22", ""},
		{"the same on a LAN", route("10.0.0.0/8", "eth0", "link"), "10.129.0.0/22", "10.0.0.0/8 on eth0"},
		{"a subnet of its own choice under a wide route", route("10.0.0.0/8", "eth0", "192.0.2.254"), "10.7.0.0/24", "the route 10.0.0.0/8 via 192.0.2.254 (eth0)"},
		{"a route as wide as the range", route("10.128.0.0/14", "eth0", "192.0.2.254"), "10.128.0.0/22", "the route 10.128.0.0/14 via 192.0.2.254 (eth0)"},
		{"a route within the range", route("10.129.0.0/16", "wg0", ""), "10.129.4.0/22", "the route 10.129.0.0/16 by wg0"},
		{"a narrower route", route("10.129.4.128/25", "wg0", ""), "10.129.4.0/22", "the route 10.129.4.128/25 by wg0"},
		{"the same route", route("10.129.4.0/22", "wg0", ""), "10.129.4.0/22", "the route 10.129.4.0/22 by wg0"},
		{"IPv6, all that is local", route("fc00::/7", "wg0", ""), "fd12:3456:789a::/64", ""},
		{"IPv6, a site", route("fd00::/8", "wg0", ""), "fdee::/64", "the route fd00::/8 by wg0"},

		{"private networks that a router drops", drop("10.0.0.0/8"), "10.7.0.0/24", ""},
		{"what another network drops of its own", drop("10.7.0.0/24"), "10.7.0.0/24", "the route 10.7.0.0/24, which drops"},
		{"a part that is dropped", drop("10.7.0.64/26"), "10.7.0.0/24", "the route 10.7.0.64/26, which drops"},

		{"Docker's network", docker(Docker, "172.30.0.0/16", "plainnet"), "172.30.0.0/16", "Docker's network plainnet (172.30.0.0/16)"},
		{"Docker's network, of which there is a bridge", Facts{
			Addrs:  []Addr{{netip.MustParsePrefix("172.30.0.1/16"), "br-0123456789ab"}},
			Docker: []Thing{{netip.MustParsePrefix("172.30.0.0/16"), Docker, "plainnet"}},
		}, "172.30.4.0/24", "Docker's network plainnet (172.30.0.0/16)"},
		{"Docker's pool", docker(Pool, "10.129.0.0/16", ""), "10.129.0.0/22", ""},
		{"link-local", addr("169.254.1.1/16", "eth0"), "169.254.0.0/16", ""},
	} {
		got := ""
		for _, clash := range Judge(c.facts.Things(), prefixes(c.subnet, "203.0.113.0/24"), cidrs) {
			if clash.Subnet.String() != c.subnet {
				t.Errorf("%s: %s is barred by %s", c.name, clash.Subnet, clash.By)
			}
			got = clash.By.String()
		}
		if got != c.by {
			t.Errorf("%s: %s is barred by %q, want %q", c.name, c.subnet, got, c.by)
		}
	}
}

// Judge finds with its order what comparing each with each finds.
func TestJudgeComparesAll(t *testing.T) {
	var things []Thing
	for _, p := range prefixes("10.0.0.0/9", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.128/25", "10.64.0.1/32", "fd00::/20", "fd00:1::/64") {
		things = append(things, Thing{p, OnLink, "eth0"})
	}
	subnets := prefixes("10.1.0.0/16", "10.1.2.0/25", "10.64.0.0/22", "10.64.0.0/24", "10.200.0.0/16", "0.0.0.0/0", "fd00::/8", "fd00:1::/80", "10.1.2.128/26")
	var want []netip.Prefix
	for _, p := range subnets {
		if slices.ContainsFunc(things, func(t Thing) bool { return t.Bars(p, nil) }) {
			want = append(want, p)
		}
	}
	var got []netip.Prefix
	for _, c := range Judge(things, subnets, nil) {
		got = append(got, c.Subnet)
	}
	slices.SortFunc(want, comparePrefix)
	if !slices.Equal(got, want) {
		t.Errorf("barred are %v, want %v", got, want)
	}
}

// The same of many that nobody chose.
func TestJudgeAtRandom(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	prefix := func() netip.Prefix {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(rnd.IntN(4)), byte(rnd.IntN(256)), byte(rnd.IntN(256))}), 8+rnd.IntN(25))
		if rnd.IntN(4) == 0 {
			p = netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0, byte(rnd.IntN(4)), byte(rnd.IntN(256))}), 8+rnd.IntN(57))
		}
		return p.Masked()
	}
	for range 300 {
		var things []Thing
		var subnets, want, got []netip.Prefix
		for range 1 + rnd.IntN(6) {
			things = append(things, Thing{prefix(), OnLink, "eth0"})
		}
		for range rnd.IntN(12) {
			subnets = append(subnets, prefix())
		}
		for _, p := range subnets {
			if slices.ContainsFunc(things, func(t Thing) bool { return t.Prefix.Overlaps(p) }) {
				want = append(want, p)
			}
		}
		for _, c := range Judge(things, subnets, nil) {
			got = append(got, c.Subnet)
		}
		slices.SortFunc(want, comparePrefix)
		if want = slices.Compact(want); !slices.Equal(got, want) {
			t.Fatalf("%v with %v: barred are %v, want %v", things, subnets, got, want)
		}
	}
}

// A cluster of a thousand hosts with much of their own, and four thousand subnets.
func BenchmarkFindings(b *testing.B) {
	state := cluster.New("1111111111111111")
	for i := range 4096 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(128 + i/64), byte(i % 64 * 4), 0}), 22)
		if _, _, err := state.Put(cluster.Subnet{Prefix: p, Network: "n"}); err != nil {
			b.Fatal(err)
		}
	}
	var things []Thing
	for i := range cluster.MaxReaches {
		things = append(things, Thing{netip.PrefixFrom(netip.AddrFrom4([4]byte{172, byte(i), 0, 0}), 16), Docker, "net"})
	}
	m := Model{Self: "1111111111111111", Snap: state.Snapshot()}
	x := newIndex(subnetsIn(m))
	for b.Loop() {
		for range 1000 {
			x.judge(things, nil)
		}
	}
}

func subnetsIn(m Model) (list []netip.Prefix) {
	for s := range cluster.All[cluster.Subnet](m.Snap) {
		list = append(list, s.Prefix)
	}
	return list
}

// The addresses of all hosts are everybody's.
func TestHostsAddresses(t *testing.T) {
	state := cluster.New("1111111111111111")
	node := cluster.Node{
		ID: "1111111111111111", Name: "host1",
		VTEP: netip.MustParseAddr("192.0.2.1"), Gossip: netip.MustParseAddrPort("192.0.2.9:7947"),
	}
	if _, _, err := state.Put(node); err != nil {
		t.Fatal(err)
	}
	m := Model{Self: "2222222222222222", Snap: state.Snapshot(), CIDRs: prefixes("192.0.0.0/14")}
	barred := m.Barred(prefixes("192.0.2.0/29", "192.0.2.8/29", "192.0.3.0/24"), false)
	for p, want := range map[string]string{"192.0.2.0/29": "it overlaps the address 192.0.2.1 of host host1", "192.0.2.8/29": "it overlaps the address 192.0.2.9 of host host1"} {
		if err := barred[netip.MustParsePrefix(p)]; err == nil || err.Error() != want {
			t.Errorf("%s: %v", p, err)
		}
	}
	if len(barred) != 2 {
		t.Errorf("barred are %v", barred)
	}
	// New networks keep away from where hosts are, as long as there is room.
	var near []string
	for _, taken := range m.Avoid(netip.MustParsePrefix("192.0.0.0/14")) {
		if taken.Soft {
			near = append(near, taken.Prefix.String())
		}
	}
	if want := []string{"192.0.0.0/20", "192.0.0.0/20"}; !slices.Equal(near, want) {
		t.Errorf("new networks keep out of %v", near)
	}
	if clear := m.Clear(prefixes("192.0.0.0/14", "10.128.0.0/14")...); !slices.Equal(clear, prefixes("10.128.0.0/14")) {
		t.Errorf("nothing is in %v", clear)
	}
}

// A network where hosts have their VTEPs inside WireGuard would take all that they send each other.
func TestNoNetworkInsideWireGuard(t *testing.T) {
	state := cluster.New("1111111111111111")
	node := cluster.Node{ID: "1111111111111111", Name: "host1", WireGuard: make([]byte, cluster.WireGuardKeySize), WireGuardAt: netip.MustParseAddrPort("192.0.2.1:7948")}
	if _, _, err := state.Put(node); err != nil {
		t.Fatal(err)
	}
	for _, self := range []cluster.NodeID{"1111111111111111", "2222222222222222"} {
		barred := Model{Self: self, Snap: state.Snapshot()}.Barred(prefixes("fd67:7261:7065:1::/64", "fd67:7261:7065::/48", "fd67:7261:7065:2::/64", "192.0.2.0/24"), false)
		if len(barred) != 3 || barred[netip.MustParsePrefix("fd67:7261:7065:2::/64")] != nil {
			t.Errorf("barred on %s are %v", self, barred)
		}
	}
}

// What does not fit into a record is what matters least.
func TestRecordIsBounded(t *testing.T) {
	things := []Thing{{netip.MustParsePrefix("10.128.9.0/24"), Routed, "via " + strings.Repeat("long\x07", 20)}, {netip.MustParsePrefix("172.30.0.0/16"), Docker, "plain"}}
	for i := range 200 {
		things = append(things, Thing{netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64, byte(i), 0}), 24), OnLink, "lan"})
	}
	got := Record(things, prefixes("172.30.0.0/16"), prefixes("10.128.0.0/14"))
	if len(got) != cluster.MaxReaches {
		t.Fatalf("%d things in the record", len(got))
	}
	for _, want := range things[:2] {
		if !slices.ContainsFunc(got, func(r cluster.Reach) bool { return r.Prefix == want.Prefix }) {
			t.Errorf("%s is not in the record", want)
		}
	}
	node := cluster.Node{ID: "1111111111111111", Reaches: got}
	if err := cluster.Validate(node); err != nil {
		t.Error(err)
	}
	if body := Of(node); len(body) != len(got) || len(body[0].Name) > cluster.MaxReachName {
		t.Errorf("read back: %v", body)
	}
}

// A network of Docker's with the subnet of another one is named, and takes nothing from it.
func TestRivals(t *testing.T) {
	state := cluster.New("1111111111111111")
	for _, b := range []cluster.Body{
		cluster.Network{Name: "one", VNID: 7},
		cluster.Subnet{Prefix: netip.MustParsePrefix("10.9.0.0/24"), Network: "one"},
		cluster.Node{ID: "1111111111111111", Name: "host1", Reaches: Record([]Thing{{netip.MustParsePrefix("10.9.0.0/24"), Rival, "two"}}, nil, nil)},
	} {
		if _, _, err := state.Put(b); err != nil {
			t.Fatal(err)
		}
	}
	m := Model{Self: "2222222222222222", Snap: state.Snapshot()}
	found := m.Findings()
	if len(found) != 1 || !strings.Contains(found[0].What(), "host host1 has a network two with the subnet 10.9.0.0/24, which is network one's") || !strings.Contains(found[0].Do(), "docker network rm two") {
		t.Errorf("found: %v", found)
	}
	if barred := m.Barred(prefixes("10.9.0.0/24"), true); len(barred) != 0 {
		t.Errorf("barred: %v", barred)
	}
	here := Model{Self: "1111111111111111", Here: Of(cluster.Node{Reaches: Record([]Thing{{netip.MustParsePrefix("10.9.0.0/24"), Rival, "two"}}, nil, nil)}), Snap: state.Snapshot()}
	if found := here.Findings(); len(found) != 1 || !found[0].Self || found[0].Note() != "not the network two of host host1, which has the same subnet" {
		t.Errorf("found there: %v", found)
	}
}
