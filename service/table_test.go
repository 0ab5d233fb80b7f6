package service

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
)

const (
	here  = cluster.NodeID("00000000000000aa")
	there = cluster.NodeID("00000000000000bb")
)

var (
	vip  = netip.MustParseAddr("10.1.0.9")
	http = Front{vip, TCP, 80}
)

// world is a Book with what it follows: a network blue with a client, and a host that writes endpoints for all.
type world struct {
	t      *testing.T
	states map[cluster.NodeID]*cluster.State
	book   *Book
	stand  map[cluster.NodeID]Standing
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, states: map[cluster.NodeID]*cluster.State{here: cluster.New(here), there: cluster.New(there)}, book: NewBook(), stand: map[cluster.NodeID]Standing{}}
	w.put(cluster.Network{Name: "blue", VNID: 1}, cluster.Subnet{Network: "blue", Prefix: netip.MustParsePrefix("10.1.0.0/16")}, w.endpoint("client", 2))
	return w
}

func (w *world) endpoint(name string, n int, aliases ...string) cluster.Endpoint {
	return cluster.Endpoint{ID: name, Network: "blue", Host: here, Name: name, Aliases: aliases, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)})}}
}

func (w *world) put(bodies ...cluster.Body) {
	w.t.Helper()
	for _, b := range bodies {
		writer := here
		if e, ok := b.(cluster.Endpoint); ok {
			writer = e.Host
		}
		rec, _, err := w.states[writer].Put(b)
		if err == nil && writer != here {
			_, err = w.states[here].Merge([]cluster.Record{rec})
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) del(b cluster.Body) { w.states[here].Delete(b.Key(), time.Unix(9, 0)) }

// to are the last bytes of the addresses that connections of a client to a front are led to.
func (w *world) to(f Front, client string) string {
	w.book.Advance(w.states[here].Snapshot())
	w.book.Look(func(id cluster.NodeID) Standing { return w.stand[id] })
	t, _ := w.book.Table([]string{client})
	b, ok := t[f]
	if !ok {
		return "none"
	}
	list := []int{}
	for _, a := range b.To {
		list = append(list, int(a.Addr().As4()[3]))
	}
	return fmt.Sprint(list)
}

// TestWhoIsIn: a replica is who has the name or the labels, and is ready, on a host that answers; the next best if
// there is none.
func TestWhoIsIn(t *testing.T) {
	w := newWorld(t)
	s := cluster.Service{Network: "blue", Name: "web", Select: "Web", Addrs: []netip.Addr{vip}, Ports: []cluster.ServicePort{{Proto: "tcp", Port: 80, Target: 8080}}}
	other := w.endpoint("web", 8)
	other.Network = "red"
	two, far := w.endpoint("b", 12, "web"), w.endpoint("c", 13, "x", "WEB")
	far.Host = there
	w.put(s, other)
	check := func(what, want string) {
		t.Helper()
		if got := w.to(http, "client"); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	check("nobody", "[]")
	w.put(w.endpoint("web", 11), two, far)
	check("by name, alias and case", "[12 13 11]") // in the order of their IDs
	two.Unready = true
	w.put(two)
	check("one is not ready", "[13 11]")
	w.stand[there] = Doubtful
	check("one on a host in doubt", "[11]")
	w.del(w.endpoint("web", 11))
	check("who is in doubt comes before who is not ready", "[13]")
	w.stand[there] = Gone
	check("nobody is ready", "[12]")
	two.Network = "red"
	w.put(two)
	check("nobody but on a host whose agent is gone", "[13]")
	two.Network = "blue"
	w.put(two)
	if got := w.to(Front{vip, ICMP, 0}, "client"); got != "[12]" {
		t.Errorf("pings: %s", got)
	}
	if got := w.to(http, "stranger"); got != "none" {
		t.Errorf("who is on no network: %s", got)
	}
	s.Select, s.Labels = "", map[string]string{"tier": "web"}
	w.put(s)
	check("by labels that nobody has", "[]")
	two.Labels, two.Labelled = map[string]string{"tier": "web", "x": "y"}, true
	w.put(two)
	check("by labels", "[12]")
	s.Labels = map[string]string{"app": ""}
	w.put(s)
	check("by a label without a value, which nobody has", "[]")
	two.Labels["app"] = ""
	w.put(two)
	check("and which one has", "[12]")
	// A network that was made anew with other subnets has no such service.
	w.del(cluster.Subnet{Prefix: netip.MustParsePrefix("10.1.0.0/16")})
	check("the network has no such address", "none")
	if l := w.book.List(); len(l) != 1 || !l[0].Void {
		t.Errorf("listed: %+v", l)
	}
	w.put(cluster.Subnet{Network: "blue", Prefix: netip.MustParsePrefix("10.1.0.0/16")})
	check("and has it again", "[12]")
	w.del(s)
	check("removed", "none")
}

// TestShares: each client of a service with affinity has one replica, all replicas have clients, and who goes takes
// nobody else's along. Of more replicas than there are slots each client has its own.
func TestShares(t *testing.T) {
	w := newWorld(t)
	const replicas, clients = 100, 300
	s := cluster.Service{Network: "blue", Name: "web", Select: "web", Affinity: true, Addrs: []netip.Addr{vip}, Ports: []cluster.ServicePort{{Proto: "tcp", Port: 80, Target: 80}}}
	w.put(s)
	for i := range replicas {
		w.put(w.endpoint(fmt.Sprint("web", i), 100+i, "web"))
	}
	for i := range clients {
		w.put(w.endpoint(fmt.Sprint("client", i), 1000+i))
	}
	before, seen := map[string]string{}, map[string]bool{}
	for i := range clients {
		c := fmt.Sprint("client", i)
		before[c] = w.to(http, c)
		seen[before[c]] = true
	}
	if len(seen) < replicas*8/10 { // 95 are expected
		t.Errorf("%d of %d replicas have clients", len(seen), replicas)
	}
	gone := w.endpoint("web7", 107, "web")
	w.del(gone)
	for c, was := range before {
		if now := w.to(http, c); now != was && was != "[107]" || now == "[107]" {
			t.Errorf("%s was led to %s, and now to %s", c, was, now)
		}
	}
	s.Affinity = false
	w.put(s)
	all := map[netip.AddrPort]bool{}
	w.to(http, "client")
	for i := range 20 {
		table, _ := w.book.Table([]string{fmt.Sprint("client", i)})
		b := table[http]
		if len(b.To) != Slots || len(b.There) != replicas-1 {
			t.Fatalf("%d of %d replicas for %d slots", len(b.To), len(b.There), Slots)
		}
		for i := range Slots {
			all[b.Slot(i)] = true
		}
	}
	if len(all) != replicas-1 {
		t.Errorf("%d of %d replicas get connections", len(all), replicas-1)
	}
}

// TestRevision: what changes nothing for a container is no change of its table.
func TestRevision(t *testing.T) {
	w := newWorld(t)
	w.put(cluster.Service{Network: "blue", Name: "web", Select: "web", Addrs: []netip.Addr{vip}, Ports: []cluster.ServicePort{{Proto: "tcp", Port: 80, Target: 80}}}, w.endpoint("web", 7))
	rev := func() uint64 {
		w.to(http, "client")
		_, rev := w.book.Table([]string{"client"})
		return rev
	}
	first := rev()
	e := w.endpoint("far", 9)
	e.Network = "red"
	w.put(e, cluster.Subnet{Network: "red", Prefix: netip.MustParsePrefix("10.2.0.0/16")})
	if rev() != first {
		t.Error("another network's endpoint is a change")
	}
	w.put(w.endpoint("web2", 8, "web"))
	if rev() == first {
		t.Error("a new replica is none")
	}
}

func TestParsePort(t *testing.T) {
	for text, want := range map[string]string{"80": "80:80/tcp", "80:8080": "80:8080/tcp", "53:5353/UDP": "53:5353/udp", "53/udp": "53:53/udp"} {
		if p, err := ParsePort(text); err != nil || PortText(p) != want {
			t.Errorf("%s: %s, %v", text, PortText(p), err)
		}
	}
	for _, text := range []string{"", "0", "80:", ":80", "65536", "80:80:80", "80/sctp", "80/", "-1", "+80", "80 "} {
		if p, err := ParsePort(text); err == nil {
			t.Errorf("%q: %v", text, p)
		}
	}
}
