package expose

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/service"
)

const self = cluster.NodeID("00000000000000aa")

func node(n int) cluster.NodeID { return cluster.NodeID(fmt.Sprintf("%016x", n)) }

// state is a cluster of a network blue, and an internal one, with these records more.
func state(t *testing.T, bodies ...cluster.Body) *cluster.Snapshot {
	t.Helper()
	s, others := cluster.New(self), map[cluster.NodeID]*cluster.State{}
	for _, b := range append([]cluster.Body{cluster.Network{Name: "blue", VNID: 1}, cluster.Network{Name: "inner", VNID: 2, Internal: true}}, bodies...) {
		writer := self
		switch b := b.(type) {
		case cluster.Endpoint:
			writer = b.Host
		case cluster.Node:
			writer = b.ID
		}
		if writer != self {
			if others[writer] == nil {
				others[writer] = cluster.New(writer)
			}
			rec, _, err := others[writer].Put(b)
			if err == nil {
				_, err = s.Merge([]cluster.Record{rec})
			}
			if err != nil {
				t.Fatal(err)
			}
			continue
		}
		if _, _, err := s.Put(b); err != nil {
			t.Fatal(err)
		}
	}
	return s.Snapshot()
}

func endpoint(name string, n byte, host cluster.NodeID, labels map[string]string) cluster.Endpoint {
	return cluster.Endpoint{ID: name, Network: "blue", Host: host, Name: name, Aliases: []string{"web"}, Labels: labels, Labelled: labels != nil,
		Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 0, n}), netip.MustParseAddr(fmt.Sprintf("fd00::%d", n))}}
}

func since(e cluster.Endpoint, when uint64) cluster.Endpoint {
	e.Exposing = when
	return e
}

func on(network string, e cluster.Endpoint) cluster.Endpoint {
	e.Network = network
	return e
}

func web(network, name string, exposed ...cluster.ServicePort) cluster.Service {
	return cluster.Service{Network: network, Name: name, Select: "web", Addrs: []netip.Addr{netip.MustParseAddr("10.1.0.99")},
		Ports: []cluster.ServicePort{{Proto: "tcp", Port: 443, Target: 8443}, {Proto: "udp", Port: 53, Target: 5353}}, Exposed: exposed}
}

func text(list []Exposure) string {
	var lines []string
	for _, e := range list {
		line := fmt.Sprintf("%s to %d of %s", e.Text(), e.Target, e.Name())
		var names []string
		for _, r := range e.Replicas {
			names = append(names, r.Endpoint.Name)
		}
		slices.Sort(names)
		line += " " + fmt.Sprint(names)
		if e.Loses != "" {
			line += " loses to " + e.Loses
		}
		if e.Closed {
			line += " closed"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestAll(t *testing.T) {
	tcp := func(port, target uint16) cluster.ServicePort {
		return cluster.ServicePort{Proto: "tcp", Port: port, Target: target}
	}
	label := func(text string) map[string]string { return map[string]string{Label: text} }
	for _, c := range []struct {
		name   string
		bodies []cluster.Body
		want   string
	}{
		{"nothing", []cluster.Body{web("blue", "web")}, ""},
		{"a service, of another port than its replicas", []cluster.Body{web("blue", "web", tcp(80, 443)), endpoint("a", 2, self, nil), endpoint("b", 3, node(2), nil)},
			"80/tcp to 8443 of service blue/web [a b]"},
		{"a port that the service has no more", []cluster.Body{web("blue", "web", tcp(80, 444))}, ""},
		{"UDP", []cluster.Body{web("blue", "web", cluster.ServicePort{Proto: "udp", Port: 53, Target: 53})}, "53/udp to 5353 of service blue/web []"},
		{"of a protocol of a newer agent", []cluster.Body{web("blue", "web", cluster.ServicePort{Proto: "sctp", Port: 53, Target: 53})}, ""},
		{"two of one port", []cluster.Body{web("blue", "web", tcp(80, 443)), web("blue", "shop", tcp(80, 443))},
			"80/tcp to 8443 of service blue/shop []\n80/tcp to 8443 of service blue/web [] loses to service blue/shop"},
		{"an internal network", []cluster.Body{web("inner", "web", tcp(80, 443))}, "80/tcp to 8443 of service inner/web [] closed"},
		{"labels", []cluster.Body{endpoint("a", 2, self, label("80:8080, 53/udp")), endpoint("b", 3, node(2), label("80:8080")), endpoint("c", 4, self, label("nonsense"))},
			"53/udp to 53 of the label grapevine.expose on network blue [a]\n80/tcp to 8080 of the label grapevine.expose on network blue [a b]"},
		{"a label that came later, of a network that is first by name", []cluster.Body{since(endpoint("a", 2, self, label("80")), 7), on("aqua", since(endpoint("b", 3, node(2), label("80")), 9))},
			"80/tcp to 80 of the label grapevine.expose on network blue [a]\n80/tcp to 80 of the label grapevine.expose on network aqua [b] loses to the label grapevine.expose on network blue"},
		{"one more of the first, which came last", []cluster.Body{since(endpoint("a", 2, self, label("80")), 7), since(endpoint("c", 4, self, label("80")), 11), on("aqua", since(endpoint("b", 3, node(2), label("80")), 9))},
			"80/tcp to 80 of the label grapevine.expose on network blue [a c]\n80/tcp to 80 of the label grapevine.expose on network aqua [b] loses to the label grapevine.expose on network blue"},
		{"of an older agent", []cluster.Body{since(endpoint("a", 2, self, label("80:8080")), 7), endpoint("b", 3, node(2), label("80:9090"))},
			"80/tcp to 9090 of the label grapevine.expose on network blue [b]\n80/tcp to 8080 of the label grapevine.expose on network blue [a] loses to the label grapevine.expose on network blue"},
		{"a label against a service", []cluster.Body{web("blue", "web", tcp(80, 443)), endpoint("a", 2, self, label("80"))},
			"80/tcp to 8443 of service blue/web [a]\n80/tcp to 80 of the label grapevine.expose on network blue [a] loses to service blue/web"},
	} {
		if got := text(All(state(t, c.bodies...))); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

// TestChoose: a host's own replicas come first, while they get connections; who cannot answer by another host gets none
// of its; what is open to others stays.
func TestChoose(t *testing.T) {
	replica := func(n byte, host cluster.NodeID, unready bool) service.Replica {
		e := endpoint(fmt.Sprint(n), n, host, nil)
		e.Unready = unready
		return service.Replica{Endpoint: e}
	}
	stand := map[cluster.NodeID]cluster.Standing{node(3): cluster.Doubtful, node(4): cluster.Gone}
	hosts := Hosts{Self: self, Stand: func(id cluster.NodeID) cluster.Standing { return stand[id] }, Answers: func(id cluster.NodeID) bool { return id != node(9) }}
	for _, c := range []struct {
		name     string
		replicas []service.Replica
		to       string
		ready    string
		there    string
	}{
		{"none", nil, "", "", ""},
		{"others'", []service.Replica{replica(2, node(2), false), replica(3, node(5), false)}, "2 3", "2 3", "2 3"},
		{"its own", []service.Replica{replica(2, node(2), false), replica(3, self, false), replica(4, node(5), false), replica(5, self, false)}, "3 5", "2 3 4 5", "2 3 4 5"},
		{"its own, not ready", []service.Replica{replica(2, node(2), false), replica(3, self, true)}, "2", "2", "2 3"},
		{"nobody ready", []service.Replica{replica(2, node(2), true), replica(3, self, true)}, "3", "2 3", "2 3"},
		{"on a host in doubt", []service.Replica{replica(2, node(2), false), replica(3, node(3), false)}, "2", "2", "2 3"},
		{"on hosts in doubt, or gone", []service.Replica{replica(2, node(4), false), replica(3, node(3), false)}, "3", "3", "2 3"},
		{"on a host that cannot answer", []service.Replica{replica(2, node(9), false)}, "", "", ""},
	} {
		for _, v6 := range []bool{false, true} {
			b := Exposure{Target: 80, Replicas: slices.Clone(c.replicas)}.Choose(hosts, v6)
			last := func(a netip.Addr) string {
				if a.Is6() != v6 {
					t.Errorf("%s: %s is of the other family", c.name, a)
				}
				return fmt.Sprint(a.AsSlice()[len(a.AsSlice())-1])
			}
			var to, ready, there []string
			for _, a := range b.To {
				to = append(to, last(a.Addr()))
			}
			for _, a := range b.Ready {
				ready = append(ready, last(a.Addr()))
			}
			for _, a := range b.There {
				there = append(there, last(a))
			}
			if got, want := fmt.Sprint(to, ready, there), fmt.Sprintf("[%s] [%s] [%s]", c.to, c.ready, c.there); got != want {
				t.Errorf("%s: %s, want %s", c.name, got, want)
			}
		}
	}
	if b := (Exposure{Target: 80, Closed: true, Replicas: []service.Replica{replica(2, node(2), false)}}).Choose(hosts, false); len(b.To)+len(b.There) > 0 {
		t.Errorf("of an internal network: %v", b)
	}
}

// TestStrands: a port leads nowhere where all containers are on other hosts that cannot answer by this one.
func TestStrands(t *testing.T) {
	able, older := cluster.Node{ID: node(2), Name: "host2", Exposes: true}, cluster.Node{ID: node(9), Name: "host9"}
	exposed := web("blue", "web", cluster.ServicePort{Proto: "tcp", Port: 8080, Target: 443})
	for _, c := range []struct {
		name   string
		bodies []cluster.Body
		heed   Heed
		want   []cluster.NodeID
	}{
		{"no container", nil, Services, nil},
		{"on a host that cannot", []cluster.Body{endpoint("a", 1, node(9), nil), endpoint("b", 2, node(9), nil)}, Services, []cluster.NodeID{node(9)}},
		{"of which this host answers no port", []cluster.Body{endpoint("a", 1, node(9), nil)}, Nothing, nil},
		{"and on one that can", []cluster.Body{endpoint("a", 1, node(9), nil), endpoint("b", 2, node(2), nil)}, Services, nil},
		{"and on this one", []cluster.Body{endpoint("a", 1, node(9), nil), endpoint("b", 2, self, nil)}, Services, nil},
		{"on a host that nobody knows", []cluster.Body{endpoint("a", 1, node(7), nil)}, Services, nil},
	} {
		list := Strands(state(t, append([]cluster.Body{able, older, exposed}, c.bodies...)...), self, c.heed)
		var got []cluster.NodeID
		for _, s := range list {
			got = append(got, s.Hosts...)
		}
		if !slices.Equal(got, c.want) || len(c.want) > 0 && list[0].Name() != "service blue/web" {
			t.Errorf("%s: %+v", c.name, list)
		}
	}
}

// TestHeed: labels are heeded where a host says so, and have no more ports than a container is given.
func TestHeed(t *testing.T) {
	byService, byLabel := Exposure{Service: "web"}, Exposure{}
	for h, want := range map[Heed][2]bool{Services: {true, false}, Labels: {true, true}, Nothing: {}, "": {}} {
		if got := [2]bool{h.Heeds(byService), h.Heeds(byLabel)}; got != want {
			t.Errorf("%q heeds %v, want %v", h, got, want)
		}
	}
	var ports []string
	for i := range maxPorts + 1 {
		ports = append(ports, fmt.Sprint(8000+i))
	}
	if _, err := Parse(strings.Join(ports[1:], ",")); err != nil {
		t.Error(err)
	}
	if _, err := Parse(strings.Join(ports, ",")); err == nil {
		t.Error("a label with too many ports is read")
	}
}
