package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
)

// state is that of host 1 with these records.
func state(t *testing.T, bodies ...cluster.Body) *cluster.Snapshot {
	t.Helper()
	s := cluster.New(id(1))
	for _, b := range bodies {
		by := id(1)
		switch b := b.(type) {
		case cluster.Endpoint:
			by = b.Host
		case cluster.Node:
			by = b.ID
		}
		if by != id(1) {
			r, _, err := cluster.New(by).Put(b)
			if err == nil {
				_, err = s.Merge([]cluster.Record{r})
			}
			if err != nil {
				t.Fatal(err)
			}
		} else if _, _, err := s.Put(b); err != nil {
			t.Fatal(err)
		}
	}
	return s.Snapshot()
}

func labelled(name, address string, labels ...string) cluster.LabelEgress {
	return cluster.LabelEgress{Name: name, Networks: []string{"blue"}, Addrs: []netip.Addr{netip.MustParseAddr(address)}, Labels: labels}
}

// TestChoice: one that asks for labels comes before the network's, the one that asks for more of them first, then the
// first by name. Whose labels are not known leaves by none that could ask for them, nor by its own host.
func TestChoice(t *testing.T) {
	all := []cluster.Body{
		cluster.Node{ID: id(1), Name: "host1"}, mail,
		labelled("all", "192.0.2.30", "role=smtp"), labelled("both", "192.0.2.31", "role=smtp", "tier=gold"), labelled("zoo", "192.0.2.32", "role=smtp"),
		labelled("here", "192.0.2.33", "grapevine.io/host=host1", "tier=lead", "role"), labelled("unread", "192.0.2.34", "in (this release)"),
	}
	sure := slices.DeleteFunc(slices.Clone(all), func(b cluster.Body) bool { return b.Key().ID == "unread" })
	for _, c := range []struct {
		network, labels string // "?": they are not known
		bodies          []cluster.Body
		want            string
	}{
		{"blue", "", sure, "mail"},
		{"blue", "role=web", sure, "mail"},
		{"blue", "role=smtp", sure, "all"},
		{"blue", "role=smtp tier=gold", sure, "both"},
		{"blue", "role=smtp tier=lead", sure, "here"},
		{"blue", "?", sure, "not known"},
		{"blue", "role=web", all, "not known"},
		{"blue", "role=smtp", all, "all"}, // it comes before by its name, and nobody else could
		{"red", "role=smtp", sure, ""},
		{"red", "?", all, ""},
		{"blue", "?", []cluster.Body{all[0], mail}, "mail"},
		{"blue", "role=web", sure[2:], ""},
	} {
		snap := state(t, c.bodies...)
		e := cluster.Endpoint{ID: "e", Network: c.network, Host: id(1), Labelled: c.labels != "?"}
		for l := range strings.FieldsSeq(c.labels) {
			if k, v, ok := strings.Cut(l, "="); ok {
				if e.Labels == nil {
					e.Labels = map[string]string{}
				}
				e.Labels[k] = v
			}
		}
		got, known := NewChoice(snap, All(snap)).Of(e)
		if !known {
			got = "not known"
		}
		if got != c.want {
			t.Errorf("of %s with %q: %q, want %q", c.network, c.labels, got, c.want)
		}
	}
	snap := state(t, sure...)
	e := cluster.Endpoint{ID: "e", Network: "blue", Host: id(1), Labelled: true, Labels: map[string]string{"role": "smtp", "tier": "gold"}}
	if got := NewChoice(snap, All(snap)).Others(e); !slices.Equal(got, []string{"all", "zoo"}) {
		t.Errorf("further ones: %v", got)
	}
}

// TestLeaving: an address is one container's: this host's, if it has one there; of two elsewhere nobody's, and of two here
// it is not known whose.
func TestLeaving(t *testing.T) {
	at := func(n byte) []netip.Addr { return []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 0, n})} }
	smtp := map[string]string{"role": "smtp"}
	snap := state(t,
		cluster.Node{ID: id(1), Name: "host1"}, mail, labelled("smtp", "192.0.2.30", "role=smtp"),
		cluster.Endpoint{ID: "a", Network: "blue", Host: id(1), Addrs: at(1), Labelled: true},
		cluster.Endpoint{ID: "b", Network: "blue", Host: id(2), Addrs: at(1), Labelled: true, Labels: smtp},
		cluster.Endpoint{ID: "c", Network: "blue", Host: id(3), Addrs: at(2), Labelled: true},
		cluster.Endpoint{ID: "d", Network: "blue", Host: id(4), Addrs: at(2), Labelled: true, Labels: smtp},
		cluster.Endpoint{ID: "e", Network: "blue", Host: id(1), Addrs: at(3), Labelled: true},
		cluster.Endpoint{ID: "f", Network: "blue", Host: id(1), Addrs: at(3), Labelled: true, Labels: smtp},
		cluster.Endpoint{ID: "g", Network: "blue", Host: id(5), Addrs: at(4), Labelled: true, Labels: smtp},
		cluster.Endpoint{ID: "h", Network: "red", Host: id(1), Addrs: at(5), Labelled: true, Labels: smtp},
		cluster.Endpoint{ID: "i", Network: "blue", Host: id(1), Addrs: at(6)})
	got := map[string]string{}
	for _, l := range NewChoice(snap, All(snap)).Leaving(id(1)) {
		got[l.Addr.String()] = fmt.Sprint(l.By, " ", l.Known)
	}
	want := map[string]string{"10.1.0.1": "mail true", "10.1.0.2": " true", "10.1.0.3": " false", "10.1.0.4": "smtp true", "10.1.0.6": " false"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestTwins: of two egresses of one name, which two hosts made at the same moment, the one that asks for labels is held by
// nobody, and whom it asks for does not leave.
func TestTwins(t *testing.T) {
	twin := labelled("mail", "192.0.2.30", "role=smtp")
	snap := state(t, cluster.Node{ID: id(1), Name: "host1", LabelEgress: true}, mail, twin)
	all := All(snap)
	if len(all) != 2 || all[0].Twice || !all[1].Twice || all[1].Name == "mail" {
		t.Fatalf("%+v", all)
	}
	e := cluster.Endpoint{ID: "e", Network: "blue", Host: id(1), Labelled: true, Labels: map[string]string{"role": "smtp"}}
	if by, known := NewChoice(snap, all).Of(e); !known || by != all[1].Name {
		t.Errorf("it leaves by %q", by)
	}
}

// TestUnknowingGateways: an older agent is no gateway of an egress that asks for labels.
func TestUnknowingGateways(t *testing.T) {
	snap := state(t, cluster.Node{ID: id(1), Name: "host1"})
	alive := func(cluster.NodeID) bool { return true }
	if got := Gateways(snap, cluster.Egress(labelled("smtp", "192.0.2.30", "role=smtp")), alive); len(got) > 0 {
		t.Errorf("%v", got)
	}
	if got := Gateways(snap, mail, alive); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

// TestBound: of a network with one egress for all the subnets leave by no other host, of others the containers.
func TestBound(t *testing.T) {
	at := func(n byte) []netip.Addr { return []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 0, n})} }
	bodies := []cluster.Body{
		cluster.Network{Name: "blue", VNID: 5}, cluster.Network{Name: "red", VNID: 6},
		cluster.Subnet{Network: "blue", Prefix: netip.MustParsePrefix("10.1.0.0/24")}, cluster.Subnet{Network: "red", Prefix: netip.MustParsePrefix("10.2.0.0/24")},
		cluster.Endpoint{ID: "a", Network: "blue", Host: id(1), Addrs: at(1), Labelled: true, Labels: map[string]string{"role": "smtp"}},
		cluster.Endpoint{ID: "b", Network: "blue", Host: id(1), Addrs: at(2), Labelled: true},
		cluster.Endpoint{ID: "c", Network: "blue", Host: id(1), Addrs: at(3)},
	}
	smtp := labelled("smtp", "192.0.2.30", "role=smtp")
	for want, more := range map[string][]cluster.Body{
		"[]":                           nil,
		"[{10.1.0.0/24 [192.0.2.25]}]": {mail},
		"[{10.1.0.1/32 [192.0.2.30]} {10.1.0.3/32 []}]":                            {smtp},
		"[{10.1.0.1/32 [192.0.2.30]} {10.1.0.2/32 [192.0.2.25]} {10.1.0.3/32 []}]": {smtp, mail},
	} {
		if got := fmt.Sprint(Bound(state(t, append(slices.Clone(bodies), more...)...), id(1))); got != want {
			t.Errorf("%v: %s, want %s", more, got, want)
		}
	}
	bodies[0] = cluster.Network{Name: "blue"}
	if got := Bound(state(t, append(bodies, mail, smtp)...), id(1)); len(got) > 0 {
		t.Errorf("of VNID 0: %v", got)
	}
}
