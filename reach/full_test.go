package reach

import (
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
)

// TestFull: a host without room for any network is known before there is one.
func TestFull(t *testing.T) {
	onLink := func(texts ...string) (list []Thing) {
		for _, p := range prefixes(texts...) {
			list = append(list, Thing{p, OnLink, "eth1"})
		}
		return list
	}
	for _, tt := range []struct {
		things []Thing
		want   string // "": there is room
	}{
		{nil, ""},
		{onLink("10.0.0.0/8"), "it has 10.0.0.0/8 on eth1 there"},
		{onLink("10.128.0.0/14"), "it has 10.128.0.0/14 on eth1 there"},
		{onLink("10.128.0.0/15", "10.130.0.0/15"), "it has 10.128.0.0/15 on eth1 and more there"},
		{onLink("10.128.0.0/15", "10.130.0.0/16", "10.131.0.0/17", "10.131.128.0/17"), "10.128.0.0/15 on eth1 and more"},
		{onLink("10.128.0.0/15", "10.130.0.0/16", "10.131.0.0/17", "10.131.128.0/18"), ""},
		{onLink("192.168.0.0/16", "10.128.0.1/32"), ""},
		// A route that is wider than the range gives way.
		{[]Thing{{prefixes("10.0.0.0/8")[0], Routed, "via 192.0.2.254 (eth0)"}}, ""},
		{[]Thing{{prefixes("10.128.0.0/14")[0], Pool, ""}}, ""},
	} {
		state := cluster.New("1111111111111111")
		other := cluster.Node{ID: "2222222222222222", Name: "host2"}
		other.Reaches = append(other.Reaches, Record(tt.things, nil, prefixes("10.128.0.0/14"))...)
		other.ID = "1111111111111111" // who writes it
		if _, _, err := state.Put(other); err != nil {
			t.Fatal(err)
		}
		m := Model{Self: "3333333333333333", Here: tt.things, Snap: state.Snapshot(), CIDRs: prefixes("10.128.0.0/14", "fd12::/48")}
		found := m.Full()
		if tt.want == "" {
			if len(found) > 0 {
				t.Errorf("%v: %+v", tt.things, found)
			}
			continue
		}
		if len(found) != 2 || !strings.HasPrefix(found[0].What(), "this host can take no network of the cluster's range 10.128.0.0/14") || !strings.Contains(found[0].What(), tt.want) ||
			!strings.HasPrefix(found[1].What(), "host host2 can take no network") || !strings.Contains(found[1].Do(), "GRAPEVINE_CIDR4") {
			t.Errorf("%v: %+v", tt.things, found)
		}
	}
}
