package overlay

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
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
		exits := exitsOf(snap, self, newTopology(snap, self, false, nil, nil, nil), nil, true, nil)
		if len(exits) != 1 || !exits[0].V4 || exits[0].V6 != able || exits[0].VTEP != addr("192.0.2.2") {
			t.Errorf("the holder holds IPv6: %v; %+v", able, exits)
		}
	}
}

// TestExitsEncrypted: what is of an encrypted network goes to the holder inside what encrypts, or nowhere.
func TestExitsEncrypted(t *testing.T) {
	const self, holder = cluster.NodeID("0000000000000001"), cluster.NodeID("0000000000000002")
	key := func(n cluster.Node, key byte) cluster.Node {
		if n.KnowsEncrypted = true; key != 0 {
			n.NetworksKey, n.WireGuardAt = bytes.Repeat([]byte{key}, cluster.WireGuardKeySize), netip.MustParseAddrPort("192.0.2.9:7948")
		}
		return n
	}
	for _, c := range []struct {
		mine, theirs byte
		want         netip.Addr
	}{{1, 2, cluster.SecureVTEP(holder)}, {1, 0, netip.Addr{}}, {0, 2, netip.Addr{}}} {
		r := replicatest.New(t, self,
			key(cluster.Node{ID: self, Name: "host1", VTEP: addr("192.0.2.1")}, c.mine),
			cluster.Network{Name: "sealed", VNID: 5, Options: map[string]string{cluster.EncryptedOption: ""}}, cluster.Network{Name: "plain", VNID: 6},
			cluster.Egress{Name: "mail", Networks: []string{"plain", "sealed"}, Addrs: []netip.Addr{addr("192.0.2.25")}},
			cluster.EgressHolder{Egress: "mail", Host: holder})
		replicatest.Hear(t, r, holder, key(cluster.Node{ID: holder, Name: "host2", VTEP: addr("192.0.2.2")}, c.theirs))
		snap := r.Snapshot()
		g := newTopology(snap, self, false, nil, nil, nil)
		exits := exitsOf(snap, self, g, nil, true, nil)
		if len(exits) != 2 || exits[0].VTEP != addr("192.0.2.2") || exits[1].VTEP != c.want {
			t.Fatalf("keys %d and %d: %+v", c.mine, c.theirs, exits)
		}
		if c.want.IsValid() && !slices.ContainsFunc(g.vteps, func(v pipeline.VTEP) bool { return v.Addr == c.want && v.Index == exits[1].Index && v.Secure }) {
			t.Errorf("the holder is known by another number than %d: %+v", exits[1].Index, g.vteps)
		}
	}
}

// TestExitsByLabel: of a network with an egress that asks for labels each container has its own way, of this host's by
// the holder, and of others' only here where NAT has it. Whose labels are not known has none.
func TestExitsByLabel(t *testing.T) {
	const self, other = cluster.NodeID("0000000000000001"), cluster.NodeID("0000000000000002")
	at := func(a string) []netip.Addr { return []netip.Addr{addr(a)} }
	smtp := map[string]string{"role": "smtp"}
	for _, c := range []struct {
		name          string
		holder, whole cluster.NodeID // of the labels', and of the network's, which there is if it is not ""
		ready         []string
		want          []string
		waiting       map[string][]cluster.NodeID
	}{
		{"held elsewhere", other, "", nil, []string{"unknown 10.1.0.3", "192.0.2.2 10.1.0.1"}, nil},
		{"held by nobody", "", "", nil, []string{"unknown 10.1.0.3", "nobody 10.1.0.1"}, nil},
		{"and a network's", other, other, nil, []string{"unknown 10.1.0.3", "192.0.2.2 10.1.0.1", "192.0.2.2 10.1.0.2"}, nil},
		{"here, and a network's elsewhere", self, other, []string{"10.1.0.1/32", "10.1.0.65/32"}, []string{"unknown 10.1.0.3", "here 10.1.0.1 10.1.0.65", "192.0.2.2 10.1.0.2"}, nil},
		{"here, and NAT has none yet", self, "", nil, []string{"unknown 10.1.0.3", "nobody 10.1.0.1"}, nil},
		{"a network's here", other, self, []string{"10.1.0.0/24", "10.1.0.2/32", "10.1.0.66/32"}, []string{"unknown 10.1.0.3", "192.0.2.2 10.1.0.1", "here 10.1.0.2 10.1.0.66"}, nil},
		{"a network's here, and NAT has the labels' for an address that had such a container", other, self, []string{"10.1.0.0/24", "10.1.0.66/32"}, []string{"unknown 10.1.0.3", "192.0.2.2 10.1.0.1", "here 10.1.0.66", "nobody 10.1.0.2"}, nil},
		{"none for the rest, and NAT has the labels' for such an address", self, "", []string{"10.1.0.1/32", "10.1.0.2/32"}, []string{"nobody 10.1.0.2", "unknown 10.1.0.3", "here 10.1.0.1"}, nil},
		{"held elsewhere, by a host that has not heard", other, other, nil, []string{"unheard 10.1.0.1", "unknown 10.1.0.3", "192.0.2.2 10.1.0.2"}, map[string][]cluster.NodeID{"a": {other}, "b": {third}}},
		{"held elsewhere, while it is found out who has heard", other, other, nil, []string{"unheard 10.1.0.1", "unheard 10.1.0.2", "unknown 10.1.0.3"}, map[string][]cluster.NodeID{"a": nil, "b": nil}},
		{"here, and others have not heard", self, "", []string{"10.1.0.1/32", "10.1.0.65/32"}, []string{"unknown 10.1.0.3", "here 10.1.0.1 10.1.0.65"}, map[string][]cluster.NodeID{"a": nil, "b": {other}}},
	} {
		r := replicatest.New(t, self,
			cluster.Node{ID: self, Name: "host1", VTEP: addr("192.0.2.1"), LabelEgress: true}, cluster.Network{Name: "blue", VNID: 5}, cluster.Network{Name: "red", VNID: 6},
			cluster.Subnet{Network: "blue", Prefix: prefix("10.1.0.0/24")},
			cluster.LabelEgress{Name: "smtp", Networks: []string{"blue"}, Addrs: at("192.0.2.26"), Labels: []string{"role=smtp"}},
			cluster.EgressHolder{Egress: "smtp", Host: c.holder},
			cluster.Endpoint{ID: "a", Network: "blue", Host: self, Addrs: at("10.1.0.1"), Labelled: true, Labels: smtp},
			cluster.Endpoint{ID: "b", Network: "blue", Host: self, Addrs: at("10.1.0.2"), Labelled: true},
			cluster.Endpoint{ID: "c", Network: "blue", Host: self, Addrs: at("10.1.0.3")},
			cluster.Endpoint{ID: "r", Network: "red", Host: self, Addrs: at("10.2.0.1"), Labelled: true, Labels: smtp})
		if c.whole != "" {
			replicatest.Put(t, r, cluster.Egress{Name: "web", Networks: []string{"blue"}, Addrs: at("192.0.2.27")}, cluster.EgressHolder{Egress: "web", Host: c.whole})
		}
		theirs := cluster.New(other)
		for _, b := range []cluster.Body{
			cluster.Node{ID: other, Name: "host2", VTEP: addr("192.0.2.2"), LabelEgress: true},
			cluster.Endpoint{ID: "d", Network: "blue", Host: other, Addrs: at("10.1.0.65"), Labelled: true, Labels: smtp},
			cluster.Endpoint{ID: "e", Network: "blue", Host: other, Addrs: at("10.1.0.66"), Labelled: true},
			cluster.Endpoint{ID: "f", Network: "blue", Host: other, Addrs: at("10.1.0.67")},
		} {
			rec, _, err := theirs.Put(b)
			if err == nil {
				_, err = r.Merge(cluster.Encode([]cluster.Record{rec}))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		snap := r.Snapshot()
		ready := func(_ string, p netip.Prefix) bool { return slices.Contains(c.ready, p.String()) }
		var got []string
		for _, e := range exitsOf(snap, self, newTopology(snap, self, false, nil, nil, nil), ready, true, c.waiting) {
			way := "nobody"
			switch {
			case e.Unknown:
				way = "unknown"
			case e.Unheard:
				way = "unheard"
			case e.Here:
				way = "here"
			case e.VTEP.IsValid():
				way = e.VTEP.String()
			}
			if !e.Listed || e.VNID != 5 {
				t.Errorf("%s: %+v", c.name, e)
			}
			got = append(got, strings.TrimSuffix(fmt.Sprintln(way, strings.Trim(fmt.Sprint(e.Addrs), "[]")), "\n"))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
