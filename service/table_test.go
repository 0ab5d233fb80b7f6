package service

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
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
	stand  map[cluster.NodeID]cluster.Standing
	stays  map[string]Stays
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, states: map[cluster.NodeID]*cluster.State{here: cluster.New(here), there: cluster.New(there)}, book: NewBook(), stand: map[cluster.NodeID]cluster.Standing{}}
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
	w.book.Look(func(id cluster.NodeID) cluster.Standing { return w.stand[id] })
	t, _ := w.book.Table([]string{client}, w.stays[client])
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
	w.stand[there] = cluster.Doubtful
	check("one on a host in doubt", "[11]")
	w.del(w.endpoint("web", 11))
	check("who is in doubt comes before who is not ready", "[13]")
	w.stand[there] = cluster.Gone
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
	w.stays = map[string]Stays{}
	for c := range before {
		w.stays[c] = Stays{}
		w.to(http, c)
	}
	for i := range replicas { // others come
		w.put(w.endpoint(fmt.Sprint("late", i), 500+i, "web"))
	}
	for c, was := range before {
		if now := w.to(http, c); now != was {
			t.Errorf("more replicas have come, and %s was led to %s, and now to %s", c, was, now)
		}
	}
	for i := range replicas {
		w.del(w.endpoint(fmt.Sprint("late", i), 500+i, "web"))
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
		table, _ := w.book.Table([]string{fmt.Sprint("client", i)}, nil)
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

// TestFamilies: by IPv4 and by IPv6 a container is led to the same replicas, to one with affinity, and to the same ones of more than there are slots.
func TestFamilies(t *testing.T) {
	w := newWorld(t)
	w.put(cluster.Subnet{Network: "blue", Prefix: netip.MustParsePrefix("fd00::/64")})
	vip6 := netip.MustParseAddr("fd00::9")
	both := func(name string, n int, aliases ...string) cluster.Endpoint {
		e := w.endpoint(name, n, aliases...)
		e.Addrs = append(e.Addrs, netip.AddrFrom16([16]byte{0xfd, 14: byte(n >> 8), 15: byte(n)}))
		return e
	}
	s := cluster.Service{Network: "blue", Name: "web", Select: "web", Affinity: true, Addrs: []netip.Addr{vip, vip6}, Ports: []cluster.ServicePort{{Proto: "tcp", Port: 80, Target: 80}}}
	for i := range 100 {
		w.put(both(fmt.Sprint("web", i), 0x100+i, "web"))
	}
	for _, s.Affinity = range []bool{true, false} {
		w.put(s)
		for i := range 20 {
			client := both(fmt.Sprint("client", i), 0x1000+i)
			w.put(client)
			w.to(http, client.ID)
			table, _ := w.book.Table([]string{client.ID}, Stays{})
			numbers := func(at netip.Addr) (list []int) {
				for _, to := range table[Front{at, TCP, 80}].To {
					b := to.Addr().AsSlice()
					list = append(list, int(b[len(b)-2])<<8|int(b[len(b)-1]))
				}
				return list
			}
			by4, by6 := numbers(vip), numbers(vip6)
			slices.Sort(by4)
			slices.Sort(by6)
			if len(by4) != map[bool]int{true: 1, false: Slots}[s.Affinity] || !slices.Equal(by4, by6) {
				t.Errorf("affinity %v: %s is led by IPv4 to %v, by IPv6 to %v", s.Affinity, client.ID, by4, by6)
			}
		}
	}
}

// TestSince: what has changed for a container is what makes of its table before the one that it has now; what changes
// nothing for it is no change. Each replica has one slot, and as few as can be are led elsewhere. The table is what a book has that has
// never seen another one.
func TestSince(t *testing.T) {
	w := newWorld(t)
	w.put(cluster.Subnet{Network: "red", Prefix: netip.MustParsePrefix("10.2.0.0/16")})
	red := w.endpoint("client2", 3)
	red.Network, red.Addrs = "red", []netip.Addr{netip.MustParseAddr("10.2.0.3")}
	w.put(red)
	client := []string{"client", "client2"}
	name := func(i int) string { return fmt.Sprint("web", i) }
	replica := func() cluster.Endpoint {
		i := rand.IntN(40)
		e := w.endpoint(fmt.Sprint("e", i), 100+i, "x", name(rand.IntN(4)))
		e.Unready = rand.IntN(4) == 0
		e.Labels, e.Labelled = map[string]string{"n": fmt.Sprint(rand.IntN(3))}, true
		if rand.IntN(4) == 0 {
			e.Network = "red"
		}
		return e
	}
	one := func() cluster.Service {
		i := rand.IntN(6)
		s := cluster.Service{Network: []string{"blue", "red"}[i%2], Name: fmt.Sprint("s", i), Select: strings.ToUpper(name(rand.IntN(4))), Affinity: rand.IntN(4) == 0}
		s.Addrs = []netip.Addr{netip.AddrFrom4([4]byte{10, byte(1 + i%2), 200, byte(rand.IntN(5))})} // of two with one address the first has it
		s.Ports = []cluster.ServicePort{{Proto: "tcp", Port: 80, Target: uint16(80 + rand.IntN(2))}, {Proto: "udp", Port: uint16(50 + rand.IntN(2)), Target: 53}}
		if rand.IntN(4) == 0 {
			s.Select, s.Labels = "", map[string]string{"n": fmt.Sprint(rand.IntN(3))}
		}
		return s
	}
	w.put(one())
	w.to(http, "client")
	stays := Stays{}
	had, at := w.book.Table(client, stays)
	lost := 0
	for step := range 300 {
		for range 1 + rand.IntN(3) {
			switch rand.IntN(12) {
			case 0:
				w.put(one())
			case 1:
				w.del(one())
			case 2, 3:
				w.del(replica())
			case 4:
				w.stand[here] = cluster.Standing(rand.IntN(3))
			case 5:
				w.del(cluster.Subnet{Prefix: netip.MustParsePrefix("10.2.0.0/16")})
			case 6:
				w.put(cluster.Subnet{Network: "red", Prefix: netip.MustParsePrefix("10.2.0.0/16")})
			default:
				w.put(replica())
			}
		}
		w.to(http, "client")
		from, to, now, known := w.book.Since(at, client, stays)
		if !known {
			t.Fatalf("step %d: the book does not know", step)
		}
		for f, b := range from {
			if was, there := had[f]; !there || !was.equal(b) {
				t.Fatalf("step %d: %v was %v, and not %v", step, f, was, b)
			}
			if _, stays := to[f]; !stays {
				delete(had, f)
			}
		}
		for f, b := range to {
			if _, was := had[f]; was {
				if _, told := from[f]; !told {
					t.Fatalf("step %d: %v is said to be new", step, f)
				}
				if before := from[f]; len(before.To) == len(b.To)+1 && lostOne(before, b) {
					moved := 0
					for i := range b.To {
						if before.Slot(i) != b.Slot(i) {
							moved++
						}
					}
					if lost++; moved > 1 {
						t.Fatalf("step %d: of %d replicas one is gone, and %d slots lead elsewhere", step, len(before.To), moved)
					}
				}
			}
			had[f] = b
		}
		table, _ := w.book.Table(client, stays)
		fresh := NewBook()
		fresh.Advance(w.states[here].Snapshot())
		fresh.Look(func(id cluster.NodeID) cluster.Standing { return w.stand[id] })
		anew, _ := fresh.Table(client, maps.Clone(stays))
		if len(had) != len(table) || len(anew) != len(table) {
			t.Fatalf("step %d: %d fronts by changes, %d in the table, %d of a new book", step, len(had), len(table), len(anew))
		}
		for f, b := range table {
			if o := had[f]; !o.equal(b) {
				t.Fatalf("step %d: %v by changes %v, in the table %v", step, f, o, b)
			}
			if o := anew[f]; !slices.Equal(o.To, b.To) || !slices.Equal(o.There, b.There) {
				t.Fatalf("step %d: %v is %v, of a new book %v", step, f, b, o)
			}
			has := map[netip.AddrPort]int{}
			for i := range b.To {
				has[b.Slot(i)]++
			}
			if len(has) != len(b.To) || len(has) > Slots {
				t.Fatalf("step %d: slots of %v: %v", step, f, has)
			}
		}
		at = now
	}
	if lost < 2 {
		t.Errorf("only %d times a replica was gone", lost)
	}
	from, to, _, known := w.book.Since(at, client, stays)
	if len(from)+len(to) > 0 || !known {
		t.Errorf("nothing has changed, and that is %v, %v", from, to)
	}
	if _, _, _, known := w.book.Since(at, client[:1], nil); known {
		t.Error("what has changed is known of other endpoints than before")
	}
	for i := range remembered/2 + 200 { // each of two
		w.put(cluster.Service{Network: "blue", Name: "s", Select: "x", Addrs: []netip.Addr{vip}, Ports: []cluster.ServicePort{{Proto: "tcp", Port: uint16(1 + i%2), Target: 1}}})
		w.to(http, "client")
	}
	if _, _, _, known := w.book.Since(at, client, stays); known || len(w.book.log.list) > remembered {
		t.Errorf("after long it is known: %v; %d changes are remembered", known, len(w.book.log.list))
	}
}

// lostOne reports whether all of b's are a's.
func lostOne(a, b Back) bool {
	return !slices.ContainsFunc(b.To, func(to netip.AddrPort) bool { return !slices.Contains(a.To, to) }) && len(a.To) > 1
}

// TestSwarm: the tasks of a service of Swarm's are the replicas of a service of its name, as they come and go, and those of another one are not.
func TestSwarm(t *testing.T) {
	w := newWorld(t)
	w.put(cluster.Service{Network: "blue", Name: "web", Select: "Web", Addrs: []netip.Addr{vip}, Ports: []cluster.ServicePort{{Proto: "tcp", Port: 80, Target: 80}}})
	task := func(name string, n int, of string) cluster.Endpoint {
		e := w.endpoint(name, n)
		e.Labels, e.Labelled = map[string]string{swarmService: of}, true
		return e
	}
	w.put(task("web.1.x", 11, "web"), task("api.1.y", 12, "api"))
	if got := w.to(http, "client"); got != "[11]" {
		t.Errorf("one task: to %s", got)
	}
	two := task("web.2.z", 13, "web")
	w.put(two)
	if got := w.to(http, "client"); got != "[11 13]" {
		t.Errorf("two tasks: to %s", got)
	}
	w.del(two)
	if got := w.to(http, "client"); got != "[11]" {
		t.Errorf("one has gone: to %s", got)
	}
}

// TestFold: names that are equal but for case are one.
func TestFold(t *testing.T) {
	for _, pair := range [][2]string{{"Web-1", "wEB-1"}, {"\u212aelvin", "kelvin"}, {"ΣΤΟΣ", "στος"}, {"straße", "STRAẞE"}, {"web", "web1"}, {"a", "á"}} {
		if same := fold(pair[0]) == fold(pair[1]); same != strings.EqualFold(pair[0], pair[1]) {
			t.Errorf("%q: one name: %v", pair, same)
		}
	}
}

// crowd is a book of 1,000 services of ten replicas each on one network.
func crowd(tb testing.TB) (*cluster.State, *Book) {
	s := cluster.New(here)
	put := func(b cluster.Body) {
		if _, _, err := s.Put(b); err != nil {
			tb.Fatal(err)
		}
	}
	put(cluster.Network{Name: "blue", VNID: 1})
	put(cluster.Subnet{Network: "blue", Prefix: netip.MustParsePrefix("10.1.0.0/16")})
	put(cluster.Endpoint{ID: "client", Network: "blue", Host: here, Name: "client", Addrs: []netip.Addr{netip.MustParseAddr("10.1.250.1")}})
	for i := range 1000 {
		put(cluster.Service{Network: "blue", Name: fmt.Sprint("s", i), Select: fmt.Sprint("web", i), Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, byte(200 + i>>8), byte(i)})}, Ports: []cluster.ServicePort{{Proto: "tcp", Port: 80, Target: 80}}})
		for n := range 10 {
			put(member(i, n, false))
		}
	}
	b := NewBook()
	b.Advance(s.Snapshot())
	b.Look(nil)
	return s, b
}

func member(service, n int, unready bool) cluster.Endpoint {
	i := 10*service + n
	return cluster.Endpoint{ID: fmt.Sprint("e", i), Network: "blue", Host: here, Name: fmt.Sprint("c", i), Aliases: []string{fmt.Sprint("web", service), fmt.Sprintf("%012d", i)}, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})}, Unready: unready}
}

// BenchmarkBook is a change of a replica of one of 1,000 services with ten each, until a container's changes are known.
func BenchmarkBook(b *testing.B) {
	s, book := crowd(b)
	client := []string{"client"}
	stays := Stays{}
	_, at := book.Table(client, stays)
	for i := 0; b.Loop(); i++ {
		if _, _, err := s.Put(member(i%1000, 3, i/1000%2 == 0)); err != nil {
			b.Fatal(err)
		}
		book.Advance(s.Snapshot())
		from, _, now, known := book.Since(at, client, stays)
		if at = now; !known || len(from) != 2 {
			b.Fatalf("%d changes, known: %v", len(from), known)
		}
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
