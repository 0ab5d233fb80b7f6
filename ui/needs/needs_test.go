package needs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-net/grapevine/api"
)

func endpoint(i int, name, network, host, addr string) api.Endpoint {
	return api.Endpoint{ID: fmt.Sprintf("%064x", i), Container: fmt.Sprintf("%064x", 1000+i), Name: name, Network: network, Host: host, Addrs: []netip.Addr{netip.MustParseAddr(addr)}}
}

var (
	app = endpoint(1, "app", "blue", "host2", "10.128.0.2")
	all = []api.Endpoint{
		endpoint(2, "web-10", "blue", "host10", "10.128.2.0"), app, endpoint(3, "web-9", "blue", "host10", "10.128.3.255"),
		{ID: fmt.Sprintf("%064x", 4), Container: app.Container, Name: "app", Network: "red", Host: "host2", Addrs: []netip.Addr{netip.MustParseAddr("fd00::8000:0:0:1")}},
		endpoint(5, "app", "green", "host1", "10.140.0.2"),
	}
)

func TestMap(t *testing.T) {
	var nodes []api.Node
	for i := range 30 {
		nodes = append(nodes, api.Node{Name: fmt.Sprintf("host%d", 30-i)})
	}
	m := MapOf(nodes, all, 1)
	if m.All != 30 || m.Pages != 2 || len(m.Hosts) != 24 || m.Hosts[1].Name != "host2" || m.Hosts[9].Name != "host10" || m.Containers != 4 || len(m.Cells) != 4 {
		t.Errorf("%+v", m)
	}
	if c := m.Cells[0]; c.Host != "host10" || c.Count != 2 || c.Containers[0].Name != "web-9" {
		t.Errorf("%+v", c)
	}
	for page, hosts := range map[int]int{0: 24, 2: 6, 9: 6, -1: 24} {
		if m := MapOf(nodes, all, page); len(m.Hosts) != hosts {
			t.Errorf("page %d has %d hosts", page, len(m.Hosts))
		}
	}
	if m := MapOf(nil, nil, 1); m.Pages != 1 || m.Page != 1 || len(m.Hosts) != 0 {
		t.Errorf("nothing is %+v", m)
	}
}

func TestFind(t *testing.T) {
	for query, want := range map[string]int{"": 4, "find=web": 2, "find=WEB+10.128.3": 1, "find=app+red": 1, "network=blue": 3, "host=host10": 2, "published": 0, "find=nobody": 0, "network=red&find=blue": 1} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if f := find(all, q); f.Found != want || f.All != 4 || f.Endpoints == nil {
			t.Errorf("%s: %+v", query, f)
		}
	}
	var many []api.Endpoint
	for i := range 2 * mostRows {
		many = append(many, endpoint(i, fmt.Sprint("c", i), "blue", "host1", "10.128.0.2"))
	}
	if f := find(many, nil); f.Found != 2*mostRows || len(f.Endpoints) != mostRows || f.Endpoints[10].Name != "c10" {
		t.Errorf("%d, %d", f.Found, len(f.Endpoints))
	}
}

// TestNear: a container is found by what the page knows of it, with all its places.
// TestFindWords: what nobody chose, hex digits, is found by how it begins, and not in its middle.
func TestFindWords(t *testing.T) {
	e := endpoint(1, "cache", "shop", "host2", "fd69:db::dead")
	e.Container, e.ID, e.MAC, e.Network = "c0ffee"+fmt.Sprintf("%058x", 0xdb), "beef0"+fmt.Sprintf("%059x", 0xdb), "0a:58:0a:db:00:02", "provisional/"+fmt.Sprintf("%064x", 0xdb)
	for word, want := range map[string]int{"db": 0, "dead": 0, "c0": 0, "c0ffee": 1, "beef0": 1, "cach": 1, "ach": 1, "fd69": 1, "db::de": 1, "0a:58": 1, ":db:00": 1, "provisional/00": 1, "0000000000db": 0, "": 1} {
		if f := find([]api.Endpoint{e}, url.Values{"find": {word}}); f.Found != want {
			t.Errorf("%q finds %d", word, f.Found)
		}
	}
}

func TestNear(t *testing.T) {
	for _, id := range []string{app.ID, app.Container, "10.128.0.2", "fd00::8000:0:0:1"} {
		if n := near(all, id); len(n.Endpoints) != 2 || len(n.Neighbours) != 2 || n.Neighbours[0].Name != "web-9" {
			t.Errorf("%s: %+v", id, n)
		}
	}
	if n := near(all, "10.0.0.1"); len(n.Endpoints) != 0 || len(n.Neighbours) != 0 {
		t.Errorf("nobody is %+v", n)
	}
	if got := names(all); !slices.Equal(got, []string{"blue/app", "green/app", "red/app", "web-9", "web-10"}) {
		t.Errorf("%v", got)
	}
	if got := counts(all); got["host2"] != 1 || got["host10"] != 2 {
		t.Errorf("%v", got)
	}
}

func TestLeased(t *testing.T) {
	nets := []api.Network{
		{Name: "blue", Subnets: []api.Subnet{{Prefix: netip.MustParsePrefix("10.128.0.0/22")}}, Hosts: make([]string, 2*mostOfHosts)},
		{Name: "red", Subnets: []api.Subnet{{Prefix: netip.MustParsePrefix("fd00::/64")}}},
	}
	got := leased(nets, all, "")
	if len(got) != 2 || !slices.Equal(got[0].At, []int{1, 500, 999}) || !slices.Equal(got[1].At, []int{500}) {
		t.Errorf("%v", got)
	}
	if one := leased(nets, all, "red"); len(one) != 1 || len(one[0].At) != 1 {
		t.Errorf("%v", one)
	}
	if n := shortened(nets)[0]; n.HostCount != 2*mostOfHosts || len(n.Hosts) != mostOfHosts {
		t.Errorf("%d of %d hosts", len(n.Hosts), n.HostCount)
	}
}

// TestLately: what took long is not asked for again at once, and what failed is.
func TestLately(t *testing.T) {
	asked, fails := 0, true
	ask := lately(func(context.Context) (int, error) {
		if asked++; fails {
			return 0, errors.New("no agent")
		}
		time.Sleep(50 * time.Millisecond)
		return asked, nil
	})
	if _, err := ask(t.Context()); err == nil {
		t.Error("no error")
	}
	fails = false
	began := time.Now()
	first, err := ask(t.Context())
	again, againErr := ask(t.Context())
	if err != nil || againErr != nil || first != 2 || again != 2 && time.Since(began) < patience*50*time.Millisecond {
		t.Errorf("asked %d times: %d %v, %d %v", asked, first, err, again, againErr)
	}
}

// TestLatelyHung: the answer of an agent that hung is not good for ten times as long as it did.
func TestLatelyHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		ask := lately(func(context.Context) (int, error) {
			asked++
			time.Sleep(15 * time.Second)
			return asked, nil
		})
		for i, pause := range []time.Duration{0, 9 * time.Second, 2 * time.Second} {
			time.Sleep(pause)
			if got, err := ask(t.Context()); got != []int{1, 1, 2}[i] || err != nil {
				t.Errorf("after %v: answer %d, %v", pause, got, err)
			}
		}
	})
}

func TestTrafficOf(t *testing.T) {
	all := api.Traffic{Hosts: []api.TrafficHost{{Name: "host1"}}, Connections: make([]api.Connection, mostRows+7)}
	all.Connections[5].State, all.Connections[mostRows+6].State = "refused", "unanswered"
	if got := TrafficOf(all, false); got.Found != mostRows+7 || len(got.Connections) != mostRows {
		t.Errorf("%d, %d", got.Found, len(got.Connections))
	}
	if got := TrafficOf(all, true); got.Found != 2 || len(got.Connections) != 2 || len(got.Hosts) != 1 {
		t.Errorf("%+v", got)
	}
}
