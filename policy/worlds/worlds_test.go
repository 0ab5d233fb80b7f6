package worlds

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/policy"
)

const (
	me    = cluster.NodeID("00000000000000aa")
	other = cluster.NodeID("00000000000000bb")
)

func put(t rapid.TB, s *cluster.State, b cluster.Body) {
	if _, _, err := s.Put(b); err != nil {
		t.Fatal(err)
	}
}

func deny(network, name string) cluster.Policy {
	return cluster.Policy{
		Scope: cluster.ScopeNetwork, Network: network, Name: name, Author: "host1",
		Text: fmt.Sprintf("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {namespace: %s, name: %s}\nspec: {podSelector: {matchLabels: {app: db}}}\n", network, name),
	}
}

func endpoint(host cluster.NodeID, id, network string, addrs ...string) cluster.Endpoint {
	e := cluster.Endpoint{ID: id, Network: network, Host: host}
	for _, a := range addrs {
		e.Addrs = append(e.Addrs, netip.MustParseAddr(a))
	}
	return e
}

func TestWorld(t *testing.T) {
	s := cluster.New(me)
	put(t, s, cluster.Node{ID: me, Name: "host1"})
	put(t, s, cluster.Network{Name: "blue", Labels: map[string]string{"team": "a"}})
	put(t, s, cluster.Subnet{Prefix: netip.MustParsePrefix("10.128.0.0/22"), Network: "blue"})
	e := endpoint(me, "e1", "blue", "10.128.0.2", "fd00::2")
	e.Labels, e.Labelled = map[string]string{"app": "db", "grapevine.io/host": "liar", "grapevine.ports": "sql=5432/tcp"}, true
	put(t, s, e)
	if w := Of(s.Snapshot(), me); !reflect.DeepEqual(w, World{}) {
		t.Errorf("without policies: %+v", w)
	}
	put(t, s, deny("blue", "db"))
	w := Of(s.Snapshot(), me)
	want := policy.Endpoint{
		ID: "e1", Network: "blue", Host: "host1", Local: true, Known: true, Addrs: e.Addrs,
		Labels: map[string]string{"app": "db", "grapevine.io/host": "host1", "grapevine.ports": "sql=5432/tcp"},
		Ports:  map[string]policy.NamedPort{"sql": {Proto: policy.TCP, Port: 5432}},
	}
	if len(w.Endpoints) != 1 || !reflect.DeepEqual(w.Endpoints[0], want) {
		t.Errorf("endpoints %+v", w.Endpoints)
	}
	if len(w.Policies) != 1 || w.Policies[0].Key.String() != "blue/db" || w.Policies[0].Author != "host1" || w.Policies[0].Version != "5" || len(w.Records) != 1 {
		t.Errorf("policies %+v", w.Policies)
	}
	if fmt.Sprint(w.Networks, w.Ranges) != "[{blue map[team:a]}] [{blue 10.128.0.0/22}]" {
		t.Errorf("networks %v, ranges %v", w.Networks, w.Ranges)
	}
	v := w.Verdict(policy.Peer{Addr: netip.MustParseAddr("192.0.2.1")}, policy.Peer{Endpoint: "e1"}, policy.TCP, 80)
	if v.Allowed {
		t.Errorf("verdict %+v", v)
	}
}

// TestUnread: what cannot be read lets nothing through of what it may be about.
func TestUnread(t *testing.T) {
	s := cluster.New(me)
	put(t, s, cluster.Network{Name: "blue"})
	put(t, s, cluster.Network{Name: "red"})
	put(t, s, endpoint(me, "e1", "blue", "10.128.0.2"))
	put(t, s, endpoint(me, "e2", "red", "10.129.0.2"))
	allowed := func(to string) bool {
		w := Of(s.Snapshot(), me)
		return w.Verdict(policy.Peer{Addr: netip.MustParseAddr("192.0.2.1")}, policy.Peer{Endpoint: to}, policy.TCP, 80).Allowed
	}
	p := deny("blue", "db")
	p.Text = "newer"
	put(t, s, p)
	if w := Of(s.Snapshot(), me); len(w.Unread) != 1 || w.Unread[0].Policy.Name != "db" || w.Unread[0].Err == nil {
		t.Errorf("unread %+v", w.Unread)
	}
	if allowed("e1") || !allowed("e2") {
		t.Error("a policy of a network that cannot be read does not isolate the network, and it alone")
	}
	p = deny("red", "other") // another one than its key says
	p.Network = "blue"
	put(t, s, p)
	if w := Of(s.Snapshot(), me); len(w.Unread) != 2 || !allowed("e2") {
		t.Errorf("unread %+v", w.Unread)
	}
	put(t, s, cluster.Policy{Scope: cluster.ScopeCluster, Name: "x", Text: "newer"})
	if allowed("e2") {
		t.Error("a policy of the cluster that cannot be read lets something through")
	}
}

// TestAwaited: of an endpoint whose labels its host waits for nothing passes in either direction, until it has them, wherever
// nobody else has any policies; others are not asked.
func TestAwaited(t *testing.T) {
	s := cluster.New(me)
	put(t, s, cluster.Network{Name: "blue"})
	e := endpoint(me, "e1", "blue", "10.128.0.2")
	e.Awaited = true
	f := new(Follower)
	allowed := func(from, to string) bool {
		w, _ := f.Follow(s.Snapshot(), me)
		return w.Verdict(policy.Peer{Endpoint: from}, policy.Peer{Endpoint: to}, policy.TCP, 80).Allowed
	}
	put(t, s, endpoint(me, "e2", "blue", "10.128.0.3")) // unknown, as with an older agent
	put(t, s, endpoint(me, "e3", "blue", "10.128.0.4"))
	if _, _ = f.Follow(s.Snapshot(), me); f.any() {
		t.Fatal("there are policies where nobody waits")
	}
	put(t, s, e)
	if allowed("e2", "e1") || allowed("e3", "e1") || allowed("e1", "e2") || !allowed("e2", "e3") || !allowed("e3", "e2") {
		t.Error("not as it is to be while labels are awaited")
	}
	if w, _ := f.Follow(s.Snapshot(), me); w.Level() != 0 {
		t.Errorf("level %d", w.Level())
	}
	e.Awaited, e.Labelled, e.Labels = false, true, map[string]string{"app": "db"}
	put(t, s, e)
	if w, changed := f.Follow(s.Snapshot(), me); !changed || len(w.Policies) != 0 || f.any() {
		t.Errorf("afterwards: %+v, %v", w, changed)
	}
	e.Labels = map[string]string{"grapevine.io/name": "db", "grapevine.from": "web"}
	put(t, s, e)
	if allowed("e3", "e1") {
		t.Error("not as the label says, when it is known")
	}
}

// TestNameless: a network whose name is not known yet may have any policies.
func TestNameless(t *testing.T) {
	s := cluster.New(me)
	put(t, s, deny("blue", "db"))
	put(t, s, cluster.Network{Name: cluster.ProvisionalPrefix + "1"})
	put(t, s, endpoint(me, "e1", cluster.ProvisionalPrefix+"1", "10.128.0.2"))
	w := Of(s.Snapshot(), me)
	if w.Verdict(policy.Peer{Addr: netip.MustParseAddr("192.0.2.1")}, policy.Peer{Endpoint: "e1"}, policy.TCP, 80).Allowed {
		t.Error("its endpoint is reached")
	}
}

// TestOneAddressOnce: an address that several endpoints say they have is the local one's, or that of one of which
// nothing is known.
func TestOneAddressOnce(t *testing.T) {
	a := func(s string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(s)} }
	list := apart([]policy.Endpoint{
		{ID: "a", Network: "n", Addrs: a("10.0.0.1"), Known: true},
		{ID: "b", Network: "n", Addrs: a("10.0.0.1"), Known: true, Local: true},
		{ID: "c", Network: "n", Addrs: a("10.0.0.2"), Known: true},
		{ID: "d", Network: "n", Addrs: a("10.0.0.2"), Known: true},
		{ID: "e", Network: "n", Addrs: a("10.0.0.3"), Known: true},
		{ID: "f", Network: "n", Addrs: a("10.0.0.1"), Known: true, Local: true},
	})
	var got []string
	for _, e := range list {
		got = append(got, fmt.Sprint(e.ID, e.Addrs, " ", e.Known))
	}
	if want := []string{"10.0.0.2[10.0.0.2] false", "a[] true", "b[10.0.0.1] true", "c[] true", "d[] true", "e[10.0.0.3] true", "f[] true"}; !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

// TestFollow: a world made of what changed is the one made of everything, and where it says that nothing changed
// nothing did.
func TestFollow(t *testing.T) {
	unchanged := 0
	rapid.Check(t, func(t *rapid.T) {
		a, b := cluster.New(me), cluster.New(other)
		var f Follower
		names := rapid.SampledFrom([]string{"blue", "red", cluster.ProvisionalPrefix + "1"})
		var last World
		for i := range rapid.IntRange(1, 30).Draw(t, "steps") {
			s, host := a, me
			if rapid.Bool().Draw(t, "other") {
				s, host = b, other
			}
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0:
				put(t, s, cluster.Node{ID: host, Name: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "name"), MTU: rapid.IntRange(1400, 1500).Draw(t, "mtu")})
			case 1:
				put(t, s, cluster.Network{Name: names.Draw(t, "name"), Labels: map[string]string{"l": rapid.StringMatching("[ab]").Draw(t, "label")}})
			case 2:
				e := endpoint(host, fmt.Sprint(host[14:], rapid.IntRange(0, 3).Draw(t, "id")), names.Draw(t, "network"), fmt.Sprintf("10.0.0.%d", rapid.IntRange(1, 4).Draw(t, "address")))
				e.Name, e.Labelled = rapid.StringMatching("[ab]").Draw(t, "name"), rapid.Bool().Draw(t, "labelled")
				put(t, s, e)
			case 3:
				p := deny("blue", rapid.StringMatching("[ab]").Draw(t, "name"))
				if rapid.Bool().Draw(t, "newer") {
					p.Text = "newer"
				}
				put(t, s, p)
			case 4:
				var keys []cluster.Key
				for r := range s.Snapshot().Records() {
					if r.Deleted == 0 && r.Key.Kind != cluster.KindNode {
						keys = append(keys, r.Key)
					}
				}
				if len(keys) > 0 {
					s.Delete(rapid.SampledFrom(keys).Draw(t, "key"), time.Unix(int64(i+1), 0))
				}
			case 5:
				put(t, s, cluster.Subnet{Prefix: netip.MustParsePrefix("10.0.0.0/24"), Network: names.Draw(t, "network")})
			}
			for _, to := range []*cluster.State{a, b} {
				from := b
				if to == b {
					from = a
				}
				if _, err := to.Merge(slices.Collect(from.Snapshot().Missing(to.Snapshot().Digest()))); err != nil {
					continue // who deletes what is another's is not believed
				}
			}
			if rapid.Bool().Draw(t, "look") {
				continue
			}
			got, changed := f.Follow(a.Snapshot(), me)
			want := Of(a.Snapshot(), me)
			for i := range got.Unread {
				got.Unread[i].Err = nil
			}
			for i := range want.Unread {
				want.Unread[i].Err = nil
			}
			if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
				t.Fatalf("got\n%+v, want\n%+v", got, want)
			}
			if !changed {
				unchanged++
				if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", last) {
					t.Fatalf("changed from\n%+v to\n%+v", last, got)
				}
			}
			last = got
		}
	})
	if unchanged == 0 {
		t.Error("every look made a world anew")
	}
}
