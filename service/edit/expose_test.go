package edit

import (
	"context"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

// TestExpose: what is wrong is said and changes nothing; a port of all hosts leads to one service.
func TestExpose(t *testing.T) {
	d, r := desk(t)
	d.Reserved = map[string]string{"4789/udp": "VXLAN's"}
	ctx := context.Background()
	for _, name := range []string{"web", "shop"} {
		if _, err := d.Create(ctx, api.CreateServiceRequest{Network: "blue", Name: name, Ports: []string{"80:8080", "53/udp"}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Update(func(tx *replica.Tx) error {
		return tx.Put(cluster.Network{Name: "red", VNID: 2, Internal: true})
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(ctx, api.CreateServiceRequest{Network: "red", Name: "inner", Ports: []string{"80"}}); err != nil {
		t.Fatal(err)
	}
	exposed := func(name string) string {
		s, _ := cluster.Get[cluster.Service](r.Snapshot(), "blue/"+name)
		return portTexts(s.Exposed)
	}
	expose := func(not bool, name, want string, ports ...string) {
		t.Helper()
		done, err := d.Expose(ctx, api.ExposeRequest{Name: name, Ports: ports, Not: not})
		got := done.Text
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s %v: %q, want %q", name, ports, got, want)
		}
	}
	expose(false, "nobody", "there is no service nobody", "80")
	expose(false, "web", "no port: write one of 80:8080/tcp, 53:53/udp")
	expose(false, "web", "it has no port 443/tcp", "443")
	expose(false, "web", "it has no port 53/tcp", "53")
	expose(false, "web", "is no port from 1 to 65535", "x")
	expose(false, "web", "port 4789/udp of all hosts is VXLAN's", "4789:53/udp")
	expose(false, "inner", "its network red is internal", "80")
	if got := exposed("web"); got != "" {
		t.Errorf("what is wrong has exposed %s", got)
	}
	expose(false, "web", "its containers on host host1 answer by that host alone", "443:80", "53/udp")
	expose(false, "shop", "leads to service blue/web already", "443:80")
	expose(false, "shop", "every host answers 80:80/tcp", "80")
	expose(false, "web", "every host answers", "443:80")
	if got, want := exposed("web"), "53:53/udp, 443:80/tcp"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	expose(true, "web", "no host answers 444/tcp for it", "444")
	expose(true, "web", "no host answers 443 for service blue/web any more", "443")
	expose(false, "shop", "every host answers", "443:80")
	expose(true, "shop", "no host answers for service blue/shop any more")
	if got := exposed("web") + "; " + exposed("shop"); got != "53:53/udp; " {
		t.Error(got)
	}
}
