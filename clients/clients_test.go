package clients

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
)

const (
	here  = cluster.NodeID("00000000000000aa")
	there = cluster.NodeID("00000000000000bb")
)

func TestMAC(t *testing.T) {
	for addr, want := range map[string]string{"10.128.0.2": "02:42:0a:80:00:02", "fd00::1:2": "02:42:00:01:00:02"} {
		if got := MAC(netip.MustParseAddr(addr)).String(); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}

func TestMTU(t *testing.T) {
	for network, want := range map[int]int{1450: 1420, 1370: 1370, 8950: 1420} {
		if got := MTU(network); got != want {
			t.Errorf("%d: %d, want %d", network, got, want)
		}
	}
}

func client(name, network string, host cluster.NodeID, addrs ...string) cluster.Endpoint {
	e := cluster.Endpoint{ID: name + "-id", Name: name, Network: network, Host: host, MAC: "02:42:00:00:00:01", Client: make([]byte, cluster.WireGuardKeySize)}
	for _, a := range addrs {
		e.Addrs = append(e.Addrs, netip.MustParseAddr(a))
	}
	return e
}

// TestOn: a host lets in those that were added at it, for as long as their networks are what they were; nobody else, and
// no container.
func TestOn(t *testing.T) {
	state, other := cluster.New(here), cluster.New(there)
	put := func(bodies ...cluster.Body) {
		t.Helper()
		for _, b := range bodies {
			if e, is := b.(cluster.Endpoint); is && e.Host == there {
				rec, _, err := other.Put(b)
				if err == nil {
					_, err = state.Merge([]cluster.Record{rec})
				}
				if err != nil {
					t.Fatal(err)
				}
				continue
			}
			if _, _, err := state.Put(b); err != nil {
				t.Fatal(err)
			}
		}
	}
	subnet := func(network, prefix string) cluster.Subnet {
		return cluster.Subnet{Network: network, Prefix: netip.MustParsePrefix(prefix)}
	}
	container := client("app", "blue", here, "10.1.0.9")
	container.Client = nil
	put(cluster.Network{Name: "blue", VNID: 1}, subnet("blue", "10.1.0.0/24"), subnet("blue", "fd00::/64"), cluster.Network{Name: "red", VNID: 2}, subnet("red", "10.2.0.0/24"),
		client("one", "blue", here, "10.1.0.2", "fd00::2"), client("two", "red", here, "10.2.0.2"), client("far", "blue", there, "10.1.0.3"), client("astray", "green", here, "10.3.0.2"), container)
	want := func(on, all string, lost map[string]string) {
		t.Helper()
		var names, every []string
		for _, c := range On(state.Snapshot(), here) {
			names = append(names, c.Name)
		}
		for _, e := range All(state.Snapshot()) {
			every = append(every, e.Name)
			if got := Lost(state.Snapshot(), e); !strings.Contains(got, lost[e.Name]) || (got == "") != (lost[e.Name] == "") {
				t.Errorf("%s: %q, want %q", e.Name, got, lost[e.Name])
			}
		}
		if got := strings.Join(names, " "); got != on {
			t.Errorf("let in: %s, want %s", got, on)
		}
		if got := strings.Join(every, " "); got != all {
			t.Errorf("there are %s, want %s", got, all)
		}
	}
	want("one two", "astray far one two", map[string]string{"astray": "network green is removed"})
	put(cluster.Network{Name: "red", VNID: 2, Removed: true})
	want("one", "astray far one two", map[string]string{"astray": "is removed", "two": "network red is removed"})
	put(cluster.Network{Name: "blue", VNID: 1, Made: "again"}) // with the same subnets
	want("", "astray far one two", map[string]string{"astray": "is removed", "two": "is removed", "one": "made anew", "far": "made anew"})
	put(cluster.Network{Name: "blue", VNID: 1})
	want("one", "astray far one two", map[string]string{"astray": "is removed", "two": "is removed"})
	state.Delete(subnet("blue", "10.1.0.0/24").Key(), time.Unix(9, 0))
	put(subnet("blue", "10.4.0.0/24"))
	want("", "astray far one two", map[string]string{"astray": "is removed", "two": "is removed", "one": "made anew", "far": "made anew"})
	state.Delete(client("one", "blue", here).Key(), time.Unix(9, 0))
	want("", "astray far two", map[string]string{"astray": "is removed", "two": "is removed", "far": "made anew"})
}
