package names

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
)

func index(t testing.TB, bodies ...cluster.Body) *Index {
	t.Helper()
	s := cluster.New(hostA)
	for _, b := range bodies {
		if _, _, err := s.Put(b); err != nil {
			t.Fatal(err)
		}
	}
	x := New()
	x.Advance(s.Snapshot())
	return x
}

func endpoint1(i int, network, name string, addr string, aliases ...string) cluster.Endpoint {
	return cluster.Endpoint{
		ID: endpointID(hostA, i), Network: network, Host: hostA, MAC: "02:00:00:00:00:01",
		Container: fmt.Sprintf("%064x", i), Name: name, Aliases: aliases, Addrs: []netip.Addr{netip.MustParseAddr(addr)},
	}
}

// The network that a question came through is searched first: it is the one of the
// container's default gateway, the one Docker's resolver searches first.
func TestFirstNetworkIsTheOneAskedThrough(t *testing.T) {
	app := endpoint1(1, "zoo", "app", "10.1.0.2")
	appToo := endpoint1(1, "ark", "app", "10.2.0.2")
	appToo.ID = endpointID(hostA, 9)
	x := index(t, app, appToo, endpoint1(2, "zoo", "db", "10.1.0.3"), endpoint1(3, "ark", "db", "10.2.0.3"))
	for asker, want := range map[string]string{"10.1.0.2": "10.1.0.3", "10.2.0.2": "10.2.0.3"} {
		v, ok := x.View(Asker{Addr: netip.MustParseAddr(asker)})
		got, found := v.Lookup("db.", 0, nil)
		if !ok || !found || len(got) != 1 || got[0].String() != want {
			t.Errorf("from %s: got %v, want %s", asker, got, want)
		}
	}
}

// Of a name with more addresses than one answer has, all come at some turn.
func TestManyReplicasTakeTurns(t *testing.T) {
	var bodies []cluster.Body
	for i := range 3 * Limit {
		bodies = append(bodies, endpoint1(i, "blue", fmt.Sprintf("web-%d", i), fmt.Sprintf("10.0.%d.%d", i/200, i%200+1), "web"))
	}
	x := index(t, bodies...)
	v, _ := x.View(Asker{Endpoints: []string{endpointID(hostA, 0)}})
	seen := map[netip.Addr]bool{}
	for turn := range 3 {
		got, _ := v.Lookup("web", turn*Limit, nil)
		if len(got) != Limit {
			t.Fatalf("turn %d: %d addresses", turn, len(got))
		}
		for _, a := range got {
			seen[a] = true
		}
	}
	if len(seen) != len(bodies) {
		t.Errorf("%d of %d replicas were ever told", len(seen), len(bodies))
	}
}

func TestProvisionalNetworkIsNotShown(t *testing.T) {
	x := index(t, endpoint1(1, "provisional/0123", "db", "10.0.0.2"))
	v, _ := x.View(Asker{Addr: netip.MustParseAddr("10.0.0.2")})
	if name, ours := v.Reverse(netip.MustParseAddr("10.0.0.2"), nil); name != "db" || !ours {
		t.Errorf("got %q %v", name, ours)
	}
}

// An address that was given to a new container is the new one's, also while the end
// of the old one has not been heard of.
func TestNewestHolderOfAnAddress(t *testing.T) {
	x := index(t, endpoint1(1, "blue", "old", "10.0.0.2"), endpoint1(2, "green", "new", "10.0.0.2"))
	v, _ := x.View(Asker{Addr: netip.MustParseAddr("10.0.0.2")})
	if got := v.Networks(); !slices.Equal(got, []string{"green"}) {
		t.Errorf("asker is on %v, want green", got)
	}
}

// Names have the addresses that Docker gave; those besides have the name all the same.
func TestAddressesBesidesHaveNoName(t *testing.T) {
	db := endpoint1(1, "blue", "db", "10.1.0.2")
	besides := netip.MustParseAddr("10.1.0.99")
	db.Addrs, db.Besides = append(db.Addrs, besides), 1
	subnet := cluster.Subnet{Prefix: netip.MustParsePrefix("10.1.0.0/24"), Network: "blue", Home: hostA}
	v, _ := index(t, db, subnet).View(Asker{Addr: besides})
	if got, found := v.Lookup("db", 0, nil); !found || !slices.Equal(got, db.Addrs[:1]) {
		t.Errorf("db is %v", got)
	}
	if name, ours := v.Reverse(besides, nil); name != "db.blue" || !ours {
		t.Errorf("%s is %q, %v", besides, name, ours)
	}
}

// A hundred thousand endpoints are to be had cheaply.
func TestSize(t *testing.T) {
	s := big(t, 100_000)
	before := heap()
	x := New()
	x.Advance(s.Snapshot())
	used := float64(heap()-before) / (1 << 20)
	t.Logf("%.1f MB for %d endpoints", used, x.Len())
	if x.Len() != 100_000 || used > 100 {
		t.Errorf("%.1f MB for %d endpoints", used, x.Len())
	}
	runtime.KeepAlive(s)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// big is a cluster of n containers with a name, two aliases, and one network of a
// hundred each.
func big(t testing.TB, n int) *cluster.State {
	t.Helper()
	s := cluster.New(hostA)
	for i := range n {
		e := endpoint1(i, fmt.Sprintf("net%d", i/100), fmt.Sprintf("app-%d-1", i),
			netip.AddrFrom4([4]byte{10, byte(128 + i>>16), byte(i >> 8), byte(i)}).String(), fmt.Sprintf("service%d", i%10), fmt.Sprintf("alias%d", i))
		if _, _, err := s.Put(e); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func BenchmarkAdvanceWhole(b *testing.B) {
	snap := big(b, 100_000).Snapshot()
	for b.Loop() {
		New().Advance(snap)
	}
}

func BenchmarkAdvanceOne(b *testing.B) {
	s := big(b, 100_000)
	x := New()
	x.Advance(s.Snapshot())
	for i := 0; b.Loop(); i++ {
		e := endpoint1(7, "net0", fmt.Sprintf("app-%d", i), "10.128.0.7")
		if _, _, err := s.Put(e); err != nil {
			b.Fatal(err)
		}
		x.Advance(s.Snapshot())
	}
}

func BenchmarkLookup(b *testing.B) {
	x := index(b, endpoint1(1, "blue", "app", "10.0.0.2"), endpoint1(2, "blue", "db", "10.0.0.3"))
	for b.Loop() {
		v, _ := x.View(Asker{Addr: netip.MustParseAddr("10.0.0.2")})
		if _, ok := v.Lookup("db.", 0, nil); !ok {
			b.Fatal("db is not known")
		}
	}
}

// A service's name has its own addresses, while these are its network's, where connections to them are led; else it
// has its replicas', as tasks.NAME always has.
func TestServices(t *testing.T) {
	vip := netip.MustParseAddr("10.1.0.9")
	s := cluster.New(hostA)
	x, without := New(), New()
	without.Unserved()
	check := func(x *Index, name, want string) {
		t.Helper()
		x.Advance(s.Snapshot())
		v, _ := x.View(Asker{Addr: netip.MustParseAddr("10.1.0.2")})
		got, _ := v.Lookup(name, 0, nil)
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", name, got, want)
		}
	}
	subnet := cluster.Subnet{Network: "blue", Prefix: netip.MustParsePrefix("10.1.0.0/24")}
	web := cluster.Service{Network: "blue", Name: "Web", Select: "app", Addrs: []netip.Addr{vip}, Ports: []cluster.ServicePort{{Proto: "tcp", Port: 80, Target: 80}}}
	for _, b := range []cluster.Body{endpoint1(1, "blue", "client", "10.1.0.2"), endpoint1(2, "blue", "a", "10.1.0.3", "app", "web"), subnet, web} {
		if _, _, err := s.Put(b); err != nil {
			t.Fatal(err)
		}
	}
	check(x, "web", "[10.1.0.9]")
	check(x, "web.blue", "[10.1.0.9]")
	check(x, "tasks.WEB", "[10.1.0.3]")
	check(x, "app", "[10.1.0.3]")
	check(without, "web", "[10.1.0.3]")
	laptop := endpoint1(1, "blue", "client", "10.1.0.2")
	laptop.Client = make([]byte, cluster.WireGuardKeySize)
	for _, asker := range []struct {
		is   cluster.Endpoint
		want string
	}{{laptop, "[10.1.0.3]"}, {endpoint1(1, "blue", "client", "10.1.0.2"), "[10.1.0.9]"}} {
		if _, _, err := s.Put(asker.is); err != nil {
			t.Fatal(err)
		}
		check(x, "web", asker.want)
		check(x, "tasks.web", "[10.1.0.3]")
	}
	v, _ := x.View(Asker{Addr: netip.MustParseAddr("10.1.0.2")})
	if name, ours := v.Reverse(vip, nil); name != "Web.blue" || !ours {
		t.Errorf("the address is %q, %v", name, ours)
	}
	s.Delete(subnet.Key(), time.Unix(9, 0))
	check(x, "web", "[10.1.0.3]") // the network was made anew
	if _, _, err := s.Put(subnet); err != nil {
		t.Fatal(err)
	}
	check(x, "web", "[10.1.0.9]")
	s.Delete(web.Key(), time.Unix(9, 0))
	check(x, "web", "[10.1.0.3]")
}

// A host's own programs hear of no name with dots but NAME.NETWORK, whatever a container is called.
func TestHostsProgramsAreNotMisled(t *testing.T) {
	liar := endpoint1(1, "blue", "liar", "10.1.0.66")
	liar.Aliases = []string{"github.com", "com", "blue"}
	x := index(t, cluster.Network{Name: "blue", VNID: 1}, liar, endpoint1(2, "blue", "web", "10.1.0.2"))
	v, ok := x.View(Asker{Networks: func(string) bool { return true }})
	if !ok {
		t.Fatal("a host is told nothing")
	}
	for name, want := range map[string]bool{"web.": true, "web.blue.": true, "github.com.": false, "api.github.com.": false, "com.": true} {
		if got, found := v.Lookup(name, 0, nil); found != want {
			t.Errorf("%s: %v, %v", name, got, found)
		}
	}
}
