package view

import (
	"fmt"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
)

// A name is shared if containers of two hosts answer to it on one network: not two of one host, nor
// two on different networks.
func TestShared(t *testing.T) {
	a, b := cluster.New(one), cluster.New(two)
	put(t, a, cluster.Node{ID: one, Name: "host1"})
	put(t, b, cluster.Node{ID: two, Name: "host2"})
	n := 0
	run := func(s *cluster.State, host cluster.NodeID, network, name string, aliases ...string) {
		n++
		put(t, s, cluster.Endpoint{ID: strings.Repeat(fmt.Sprintf("%04x", n), 16), Network: network, MAC: "02:42:00:00:00:01", Host: host, Name: name, Aliases: aliases})
	}
	run(a, one, "blue", "shop-api-1", "api")
	run(a, one, "blue", "shop-api-2", "api")
	run(a, one, "red", "db", "db")
	run(b, two, "green", "db")
	want := "[]"
	merge := func() string {
		var recs []cluster.Record
		for r := range b.Snapshot().Records() {
			recs = append(recs, r)
		}
		if _, err := a.Merge(recs); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(Shared(a.Snapshot()))
	}
	if got := merge(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	run(b, two, "blue", "api", "shop-api-1")
	want = "[{blue api [host1 host2]} {blue shop-api-1 [host1 host2]}]"
	if got := merge(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, e := range Endpoints(a.Snapshot()) {
		if got, want := fmt.Sprint(e.Shared), map[string]string{"shop-api-1": "[shop-api-1 api]", "shop-api-2": "[api]", "api": "[api shop-api-1]", "db": "[]"}[e.Name]; got != want {
			t.Errorf("%s: %s, want %s", e.Name, got, want)
		}
	}
}
