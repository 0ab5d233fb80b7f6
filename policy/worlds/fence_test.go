package worlds

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/policy"
)

// TestFence: an EgressNetworkPolicy is about the outside, and follows the cluster's subnets and containers' labels. It is no other
// policy's record, and of one that cannot be read the network is cut off.
func TestFence(t *testing.T) {
	s := cluster.New(me)
	put(t, s, cluster.Network{Name: "blue"})
	put(t, s, cluster.Subnet{Prefix: netip.MustParsePrefix("10.128.0.0/22"), Network: "blue"})
	for i, id := range []string{"e1", "e2"} {
		e := endpoint(me, id, "blue", []string{"10.128.0.2", "10.128.0.3"}[i])
		e.Labels, e.Labelled = map[string]string{"app": id}, true
		put(t, s, e)
	}
	key := policy.Key{Kind: policy.EgressNetworkPolicy, Network: "blue", Name: "default"}
	rec := RecordOf(key)
	rec.Author, rec.Text = "host1", "apiVersion: network.openshift.io/v1\nkind: EgressNetworkPolicy\nmetadata: {name: default, namespace: blue}\nspec: {egress: [{type: Allow, to: {cidrSelector: 192.0.2.0/24}}, {type: Deny, to: {cidrSelector: 0.0.0.0/0}}]}\n"
	put(t, s, rec)
	f := new(Follower)
	says := func(to string, want bool, rule string) {
		t.Helper()
		w, _ := f.Follow(s.Snapshot(), me)
		if len(w.Policies) < len(w.Records) || w.Policies[0].Key != key || w.Policies[0].Author != "host1" || w.Level() != cluster.EnforcesV3 {
			t.Fatalf("world %+v", w)
		}
		v := w.Verdict(policy.Peer{Endpoint: "e1"}, policy.Peer{Addr: netip.MustParseAddr(to)}, policy.TCP, 80)
		if v.Allowed != want || !want && v.Egress.Rules[0].String() != rule {
			t.Errorf("to %s: %+v", to, v)
		}
	}
	const denies = "blue/default egress[1] Deny 0.0.0.0/0"
	says("192.0.2.1", true, "")
	says("198.51.100.1", false, denies)
	says("10.128.0.3", true, "")
	says("10.128.8.3", false, denies)
	put(t, s, cluster.Subnet{Prefix: netip.MustParsePrefix("10.128.8.0/22"), Network: "red"})
	says("10.128.8.3", true, "")
	e := endpoint(me, "e1", "blue", "10.128.0.2")
	e.Labels, e.Labelled = map[string]string{"app": "e1", "grapevine.to": "any"}, true
	put(t, s, e)
	says("192.0.2.1", true, "")
	says("198.51.100.1", false, denies)
	says("10.128.0.3", true, "")
	if NameOf(rec) != "default" || NameOf(deny("blue", "db")) != "db" || KeyOf(policy.Key{Kind: policy.NetworkPolicy, Network: "blue", Name: "default"}) == KeyOf(key) {
		t.Error("names")
	}
	rec.Text = strings.Replace(rec.Text, "v1", "v7", 1)
	put(t, s, rec)
	w, _ := f.Follow(s.Snapshot(), me)
	if v := w.Verdict(policy.Peer{Endpoint: "e2"}, policy.Peer{Addr: netip.MustParseAddr("192.0.2.1")}, policy.TCP, 80); v.Allowed || len(w.Unread) != 1 {
		t.Errorf("one that cannot be read: %+v", v)
	}
}
