package edit

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
	"github.com/grapevine-net/grapevine/replica/replicatest"
)

const self = cluster.NodeID("00000000000000aa")

// desk is one of a host with the networks blue, of both families, and red, and a container web on each.
func desk(t *testing.T) (Desk, *replica.Replica) {
	t.Helper()
	r := replicatest.New(t, self,
		cluster.Node{ID: self, Name: "host1"}, cluster.Network{Name: "blue", VNID: 1}, cluster.Network{Name: "red", VNID: 2},
		cluster.Subnet{Network: "blue", Prefix: netip.MustParsePrefix("10.1.0.0/24")}, cluster.Subnet{Network: "blue", Prefix: netip.MustParsePrefix("fd00::/64")},
		cluster.Subnet{Network: "red", Prefix: netip.MustParsePrefix("10.2.0.0/24")},
		cluster.Endpoint{ID: "e1", Network: "blue", Host: self, Name: "web", Addrs: []netip.Addr{netip.MustParseAddr("10.1.0.3")}},
	)
	return Desk{
		Name: "host1", Replica: r, Published: func(key string) bool { return !strings.HasPrefix(key, "com.docker.") },
		Addresses: func(_ context.Context, subnets []netip.Prefix, write func([]netip.Addr) error) error {
			var addrs []netip.Addr
			for _, p := range subnets {
				addrs = append(addrs, p.Addr().Next().Next())
			}
			return write(addrs)
		},
	}, r
}

// TestDesk: what is wrong is said and writes nothing; what is made has an address of each family, and is found by its
// name as long as that is one service's.
func TestDesk(t *testing.T) {
	d, r := desk(t)
	ctx := context.Background()
	good := api.CreateServiceRequest{Network: "blue", Name: "web", Ports: []string{"80:8080"}}
	for want, change := range map[string]func(*api.CreateServiceRequest){
		"no name": func(r *api.CreateServiceRequest) { r.Name = "" }, "a dot, a slash": func(r *api.CreateServiceRequest) { r.Name = "a/b" },
		"no network": func(r *api.CreateServiceRequest) { r.Network = "" }, "there is no network green": func(r *api.CreateServiceRequest) { r.Network = "green" },
		"has 64 letters": func(r *api.CreateServiceRequest) { r.Name = strings.Repeat("a", 64) }, "name for itself": func(r *api.CreateServiceRequest) { r.Name = "Localhost" },
		"no port": func(r *api.CreateServiceRequest) { r.Ports = nil }, "is there twice": func(r *api.CreateServiceRequest) { r.Ports = []string{"80", "80:1"} },
		"told to no other host": func(r *api.CreateServiceRequest) { r.Labels = map[string]string{"com.docker.x": "y"} },
	} {
		bad := good
		change(&bad)
		if _, err := d.Create(ctx, bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if list, err := d.List(ctx); err != nil || len(list) != 0 {
		t.Fatalf("what is wrong has made %+v, %v", list, err)
	}
	done, err := d.Create(ctx, good)
	if err != nil || done.Text != "service web of network blue has the address 10.1.0.2 and fd00::2" {
		t.Fatalf("%q, %v", done.Text, err)
	}
	if _, err := d.Create(ctx, good); err == nil || !strings.Contains(err.Error(), "grapevine service remove blue/web") {
		t.Errorf("made twice: %v", err)
	}
	bigger := api.CreateServiceRequest{Network: "blue", Name: "Web", Ports: []string{"80:8081", "81"}, Affinity: true, Replace: true}
	if _, err := d.Expose(ctx, api.ExposeRequest{Name: "blue/web", Ports: []string{"8080:80"}}); err != nil {
		t.Fatal(err)
	}
	if done, err := d.Create(ctx, bigger); err != nil || done.Text != "service web of network blue has the ports 80:8081/tcp, 81:81/tcp now, and its address 10.1.0.2 and fd00::2 as before" {
		t.Fatalf("replaced: %q, %v", done.Text, err)
	}
	if list, _ := d.List(ctx); len(list) != 1 || len(list[0].Ports) != 2 || len(list[0].Exposed) != 1 || !list[0].Affinity || list[0].Addrs[0] != netip.MustParseAddr("10.1.0.2") {
		t.Errorf("replaced: %+v", list)
	}
	for want, bad := range map[string]api.CreateServiceRequest{
		"port 8080/tcp of all hosts leads to its port 80/tcp: say that one as well, or first: grapevine service unexpose blue/web 8080": {Network: "blue", Name: "web", Ports: []string{"81"}, Replace: true},
		"there is no service blue/nobody to replace: leave out --replace":                                                               {Network: "blue", Name: "nobody", Ports: []string{"81"}, Replace: true},
	} {
		if _, err := d.Create(ctx, bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q, want %q", err, want)
		}
	}
	if _, err := d.Expose(ctx, api.ExposeRequest{Name: "blue/web", Not: true}); err != nil {
		t.Fatal(err)
	}
	good.Replace = true
	if _, err := d.Create(ctx, good); err != nil {
		t.Error(err)
	}
	good.Replace = false
	shouted := good
	shouted.Name = "WEB"
	if _, err := d.Create(ctx, shouted); err == nil || !strings.Contains(err.Error(), "has a service web already") {
		t.Errorf("made in capitals: %v", err)
	}
	other := good
	other.Network = "red"
	if done, err := d.Create(ctx, other); err != nil || !strings.Contains(done.Text, "no container is behind it yet: it has those with the name or the alias web") {
		t.Fatalf("%q, %v", done.Text, err)
	}
	unready := func(is bool) {
		t.Helper()
		if _, err := r.Update(func(tx *replica.Tx) error {
			return tx.Put(cluster.Endpoint{ID: "e1", Network: "blue", Host: self, Name: "web", Addrs: []netip.Addr{netip.MustParseAddr("10.1.0.3")}, Unready: is})
		}); err != nil {
			t.Fatal(err)
		}
	}
	unready(true)
	if notes := d.Notes(); len(notes) != 2 || notes[0] != "service blue/web: its containers all start, or are being stopped, paused or not healthy (web on host host1): connections are led there all the same" {
		t.Errorf("notes: %q", notes)
	}
	unready(false)
	if notes := d.Notes(); len(notes) != 1 {
		t.Errorf("notes: %q", notes)
	}
	list, _ := d.List(ctx)
	if len(list) != 2 || list[0].Author != "host1" || len(list[0].Replicas) != 1 || !list[0].Replicas[0].In || list[0].Replicas[0].Host != "host1" || list[0].Ports[0] != "80:8080/tcp" {
		t.Errorf("listed %+v", list)
	}
	if _, err := d.Remove(ctx, api.RemoveServiceRequest{Name: "web"}); err == nil || !strings.Contains(err.Error(), "name one of blue/web, red/web") {
		t.Errorf("of two: %v", err)
	}
	// A network that was made anew has no such service, and may get one.
	_, err = r.Update(func(tx *replica.Tx) error {
		tx.Delete(cluster.Subnet{Prefix: netip.MustParsePrefix("10.2.0.0/24")}.Key())
		return tx.Put(cluster.Subnet{Network: "red", Prefix: netip.MustParsePrefix("10.3.0.0/24")})
	})
	if err != nil {
		t.Fatal(err)
	}
	if list, _ = d.List(ctx); len(list) != 2 || len(list[1].Notes) != 1 || !strings.Contains(list[1].Notes[0], "grapevine service remove red/web") {
		t.Errorf("listed %+v", list)
	}
	if notes := d.Notes(); len(notes) != 1 || !strings.HasPrefix(notes[0], "service red/web: its address is not of the network any more") {
		t.Errorf("notes: %q", notes)
	}
	if done, err := d.Create(ctx, other); err != nil || !strings.Contains(done.Text, "has the address 10.3.0.2\n") {
		t.Errorf("made anew: %q, %v", done.Text, err)
	}
	for _, name := range []string{"red/web", "web"} {
		if _, err := d.Remove(ctx, api.RemoveServiceRequest{Name: name}); err != nil {
			t.Error(err)
		}
	}
	if _, err := d.Remove(ctx, api.RemoveServiceRequest{Name: "web"}); err == nil || !strings.Contains(err.Error(), "there is no service web") {
		t.Errorf("removed twice: %v", err)
	}
}
