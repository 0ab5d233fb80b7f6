package edit

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

const egress = "apiVersion: network.openshift.io/v1\nkind: EgressNetworkPolicy\nmetadata: {name: default, namespace: blue}\nspec: {egress: [{type: Allow, to: {dnsName: api.example.com}}, {type: Deny, to: {cidrSelector: 0.0.0.0/0}}]}\n"

// TestEgressNetworkPolicy: a network has one beside its other policies; it is tried, listed, explained and deleted as these are.
func TestEgressNetworkPolicy(t *testing.T) {
	d, r := desk(t)
	if _, err := r.Update(func(tx *replica.Tx) error {
		_ = tx.Put(cluster.Node{ID: self, Name: "host1", Agent: "v2", Enforces: cluster.EnforcesV3})
		return tx.Put(cluster.Subnet{Prefix: netip.MustParsePrefix("10.128.0.0/24"), Network: "blue", Home: self})
	}); err != nil {
		t.Fatal(err)
	}
	tried, err := d.Try(context.Background(), api.ApplyRequest{Text: egress})
	if err != nil || len(tried.Changes) == 0 || tried.Changes[0].Rules[0].Rule != "blue/default egress[1] Deny 0.0.0.0/0" {
		t.Errorf("%v, %+v", err, tried)
	}
	for _, c := range tried.Changes {
		if c.To.Host != "" && c.From.Name != "new" { // whose labels are not known
			t.Errorf("within the cluster: %+v", c)
		}
	}
	apply(t, d, strings.ReplaceAll(db, "name: db", "name: default"))
	if got := apply(t, d, egress); got != "EgressNetworkPolicy blue/default is created; it denies nothing of IPv6: if the network has any, add a rule with ::/0" {
		t.Errorf("%q", got)
	}
	all, err := d.List(context.Background())
	if err != nil || len(all.Policies) != 2 || all.Policies[0].Kind != "NetworkPolicy" || all.Policies[1].Kind != "EgressNetworkPolicy" || all.Policies[1].String() != "blue/default" || all.Policies[1].Selects != 3 {
		t.Errorf("%v, %+v", err, all)
	}
	e, err := d.Explain(context.Background(), api.ExplainRequest{From: "web", To: "203.0.113.1", Port: 80})
	if err != nil || e.Allowed || e.Egress.Rules[0].Rule != "blue/default egress[1] Deny 0.0.0.0/0" || e.Egress.Rules[0].Author != "host1" {
		t.Errorf("%v, %+v", err, e)
	}
	if e, err := d.Explain(context.Background(), api.ExplainRequest{From: "web", To: "api.example.com", Port: 80}); err != nil || !e.Allowed {
		t.Errorf("%v, %+v", err, e)
	}
	refused := func(want string) {
		t.Helper()
		if _, err := d.Apply(context.Background(), api.ApplyRequest{Text: strings.Replace(egress, "name: default", "name: two", 1)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	refused("network blue has an EgressNetworkPolicy already, default; give this one its name, or `grapevine policy delete enp blue/default` first")
	if _, err := d.Delete(context.Background(), api.DeletePolicyRequest{Kind: "enp", Network: "blue", Name: "two"}); err == nil {
		t.Error("another name deletes it")
	}
	if _, err := d.Delete(context.Background(), api.DeletePolicyRequest{Kind: "enp", Network: "blue", Name: "default"}); err != nil || count(t, d) != 1 {
		t.Error(err, count(t, d))
	}
	other := cluster.New("00000000000000bb")
	old, _, err := other.Put(cluster.Node{ID: other.Self(), Name: "host2", Agent: "v1", Enforces: cluster.EnforcesV2})
	if err == nil {
		_, err = r.Merge(cluster.Encode([]cluster.Record{old}))
	}
	if err != nil {
		t.Fatal(err)
	}
	refused("hosts with an older agent would cut off all containers of the network: host2 (v1); upgrade their agents first")
}
