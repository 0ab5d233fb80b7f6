package bgp

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
)

const self, other = cluster.NodeID("0000000000000001"), cluster.NodeID("0000000000000002")

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }

func state(t *testing.T, bodies ...cluster.Body) *cluster.State {
	t.Helper()
	s := cluster.New(self)
	for _, b := range bodies {
		if _, _, err := s.Put(b); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// world has two networks with a subnet of which this host has half, two into which nobody is let, and two egresses.
func world() []cluster.Body {
	mail := cluster.Egress{Name: "mail", Networks: []string{"blue"}, Addrs: []netip.Addr{addr("203.0.113.25"), addr("2001:db8::25")}}
	post := cluster.Egress{Name: "post", Networks: []string{"red"}, Addrs: []netip.Addr{addr("203.0.113.26")}}
	list := []cluster.Body{
		mail, post, cluster.EgressHolder{Egress: "mail", Host: self}, cluster.EgressHolder{Egress: "post", Host: other},
		cluster.Claim{Block: prefix("0.0.0.0/0"), Owner: self},
	}
	for i, n := range []cluster.Network{
		{Name: "blue", VNID: 5}, {Name: "red", VNID: 6}, {Name: "vault", VNID: 7, Internal: true}, {Name: "proxy", VNID: 8, Options: map[string]string{cluster.IsolateOption: "true"}},
	} {
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 128, byte(4 * i), 0}), 22)
		half := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 128, byte(4*i + 2), 0}), 23)
		list = append(list, n, cluster.Subnet{Prefix: subnet, Network: n.Name}, cluster.Claim{Block: half, Owner: other})
	}
	return list
}

func texts(routes []Route) string {
	var list []string
	for _, r := range routes {
		list = append(list, r.Prefix.String()+" "+r.For)
	}
	return strings.Join(list, ", ")
}

func (c Case) at(s *cluster.State) Case {
	c.Self, c.Snap = self, s.Snapshot()
	if c.Serves == nil {
		c.Serves = func(string) bool { return true }
	}
	if c.Has == nil {
		c.Has = func(netip.Addr) bool { return false }
	}
	return c
}

func TestPlan(t *testing.T) {
	moved := cluster.Endpoint{ID: strings.Repeat("a", 64), Network: "blue", Host: self, Addrs: []netip.Addr{addr("10.128.3.9")}, MAC: "02:00:00:00:00:01"}
	client := cluster.Endpoint{ID: strings.Repeat("b", 64), Network: "blue", Host: self, Addrs: []netip.Addr{addr("10.128.3.10")}, MAC: "02:00:00:00:00:02", Client: make([]byte, 32)}
	client.Client[0] = 1
	const mail = "203.0.113.25/32 egress mail, 2001:db8::25/128 egress mail"
	for _, tt := range []struct {
		what  string
		more  []cluster.Body
		c     Case
		want  string
		wrong []string
	}{
		{what: "what this host holds, and of what is not named nothing", want: mail},
		{what: "an egress that it is not ready for", c: Case{Serves: func(string) bool { return false }}},
		{what: "the half of a network that is its own", c: Case{Networks: []string{"blue"}}, want: "10.128.0.0/23 network blue, " + mail},
		{what: "a container with an address of another host's half", more: []cluster.Body{moved, client}, c: Case{Networks: []string{"blue"}}, want: "10.128.0.0/23 network blue, 10.128.3.9/32 network blue, " + mail},
		{what: "an address that it has, and one that it has not", c: Case{Addresses: []netip.Addr{addr("203.0.113.80"), addr("203.0.113.81")}, Has: func(a netip.Addr) bool { return a == addr("203.0.113.80") }},
			want: "203.0.113.25/32 egress mail, 203.0.113.80/32 this host's address, 2001:db8::25/128 egress mail", wrong: []string{"203.0.113.81"}},
		{what: "networks that nobody is let into", c: Case{Networks: []string{"vault", "proxy", "none"}}, want: mail, wrong: []string{"vault, and are not: it is internal", "proxy, and are not: its members are apart", "none, and are not: there is none"}},
	} {
		routes, wrong := tt.c.at(state(t, append(world(), tt.more...)...)).Plan()
		if got := texts(routes); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.what, got, tt.want)
		}
		if len(wrong) != len(tt.wrong) {
			t.Errorf("%s: %v", tt.what, wrong)
			continue
		}
		for i, w := range wrong {
			if !strings.Contains(w.What, tt.wrong[i]) || w.Do == "" {
				t.Errorf("%s: %v, want %s", tt.what, w, tt.wrong[i])
			}
		}
	}
}

// TestOpen: what is let in on a host is what it tells of: nothing of other networks, nor another host's part of these.
func TestOpen(t *testing.T) {
	snap := state(t, world()...).Snapshot()
	for host, want := range map[cluster.NodeID]netip.Prefix{self: prefix("10.128.0.0/23"), other: prefix("10.128.2.0/23")} {
		if got := Open(snap, host, []string{"blue", "vault", "proxy", "none"}); !slices.Equal(got, []netip.Prefix{want}) {
			t.Errorf("host %s lets into %v", host, got)
		}
	}
}

// TestRank: whoever takes an address over is preferred to who held it before.
func TestRank(t *testing.T) {
	s := state(t, world()...)
	rank := func() uint32 {
		routes, _ := Case{}.at(s).Plan()
		return routes[0].Rank
	}
	before := rank()
	for _, h := range []cluster.NodeID{other, self} {
		if _, _, err := s.Put(cluster.EgressHolder{Egress: "mail", Host: h}); err != nil {
			t.Fatal(err)
		}
	}
	if after := rank(); after >= before || after == 0 {
		t.Errorf("the rank is %d, and was %d", after, before)
	}
	for version, want := range map[uint64]uint32{0: 1<<32 - 1, 1: 1<<32 - 2, 1<<32 - 2: 1, 1<<32 - 1: 1<<32 - 1} {
		if got := rankOf(version); got != want {
			t.Errorf("version %d has rank %d, want %d", version, got, want)
		}
	}
}
