package traffic

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/overlay/counter"
)

var (
	app, db = netip.MustParseAddr("10.128.0.2"), netip.MustParseAddr("10.128.1.2")
	out     = netip.MustParseAddr("203.0.113.9")
	now     = time.Unix(1_000_000, 0)
)

// half is what one end sent to the other: so many packets, seconds ago the first and the last.
func half(from, to netip.Addr, sport, dport uint16, proto, flags, opened uint8, packets uint64, first, last int) Record {
	return Record{
		Half:  counter.Half{Src: from, Dst: to, SrcPort: sport, DstPort: dport, Proto: proto},
		Count: counter.Count{Packets: packets, Bytes: 100 * packets, First: now.Add(-time.Duration(first) * time.Second), Last: now.Add(-time.Duration(last) * time.Second), Flags: flags, Opened: opened, Port: "gv0"},
		Src:   whos[from], Dst: whos[to],
	}
}

func those(list []Record) (out []*Record) {
	for _, r := range list {
		out = append(out, &r)
	}
	return out
}

var whos = map[netip.Addr]Who{app: {"app", "blue", "host1"}, db: {"db", "blue", "host2"}}

// TestStates: how a connection stands, by both halves and by one alone, where the other is counted on another host.
func TestStates(t *testing.T) {
	there := func(flags uint8, packets uint64, first, last int) Record {
		return half(app, db, 40000, 5432, tcp, flags, syn, packets, first, last)
	}
	back := func(flags uint8) Record {
		return half(db, app, 5432, 40000, tcp, flags, syn|ack, 2, 9, 1)
	}
	word := func(to netip.Addr, proto uint8, first int) Record {
		return half(app, to, 40000, 53, proto, 0, 0, 1, first, first)
	}
	for _, tt := range []struct {
		records    []Record
		alone, all string
	}{
		{[]Record{there(syn|ack, 3, 9, 1), back(syn | ack)}, "open", "open"},
		{[]Record{there(syn|ack|fin, 3, 9, 1), back(syn | ack)}, "open", "open"},
		{[]Record{there(syn|ack|fin, 3, 9, 1), back(syn | ack | fin)}, "closed", "closed"},
		{[]Record{there(syn|ack|rst, 3, 9, 1), back(syn | ack)}, "reset", "reset"},
		{[]Record{there(syn, 1, 9, 9), back(rst | ack)}, "refused", "refused"},
		{[]Record{there(syn|ack, 3, 9, 9), half(db, app, 5432, 40000, tcp, rst|ack, rst|ack, 3, 9, 9)}, "refused", "refused"},
		{[]Record{there(syn, 3, 9, 1)}, "unanswered", "unanswered"},
		{[]Record{there(syn, 1, 9, 9)}, "opening", "unanswered"}, // alone: it may have been refused
		{[]Record{there(syn, 1, 1, 1)}, "opening", "opening"},
		{[]Record{there(syn|ack, 9, 9, 1)}, "open", "open"},
		{[]Record{there(syn|ack|fin, 9, 9, 1)}, "closed", "open"},
		{[]Record{back(syn | ack)}, "open", "open"}, // the callee's host alone
		{[]Record{word(db, udp, 9)}, "sent", "unanswered"},
		{[]Record{word(db, udp, 1)}, "sent", "sent"},
		{[]Record{word(out, udp, 9)}, "unanswered", "unanswered"}, // an answer would come by this host's gv0
		{[]Record{word(out, udp, 9), half(out, app, 53, 40000, udp, 0, 0, 1, 8, 8)}, "answered", "answered"},
		{[]Record{half(app, db, 7, 7, icmp, 1, 1, 5, 9, 1), half(db, app, 7, 7, icmp, 0, 0, 5, 9, 1)}, "answered", "answered"},
		{[]Record{half(app, out, 7, 7, icmp, 1, 1, 5, 9, 1)}, "unanswered", "unanswered"},
		{[]Record{half(app, out, 0, 0, icmp, 0, 0, 1, 9, 9)}, "sent", "sent"}, // an error of ICMP
		{[]Record{half(app, out, 0, 0, udp, 0, 0, 1, 9, 9)}, "sent", "sent"},  // later fragments
		{[]Record{half(app, out, 0, 0, 47, 0, 0, 1, 9, 9)}, "sent", "sent"},
	} {
		for whole, want := range map[bool]string{false: tt.alone, true: tt.all} {
			for range 4 { // in any order of the map
				list := Join(those(tt.records), whole, now)
				if len(list) != 1 || list[0].State != want || list[0].From.Addr != app {
					t.Fatalf("%+v, all hosts asked: %v: %+v, want %s, from app", tt.records, whole, list, want)
				}
			}
		}
	}
}

// TestJoin: what went each way is told once, from whom it began, with both ends' names, and nothing is counted twice or left out.
func TestJoin(t *testing.T) {
	list := Join(those([]Record{
		half(db, app, 5432, 40000, tcp, syn|ack, syn|ack, 7, 9, 1), half(app, db, 40000, 5432, tcp, syn|ack, syn, 5, 10, 2),
		half(app, db, 40000, 5432, tcp, ack, ack, 4, 5, 0), // it was idle between, and counted anew
		half(app, app, 9, 9, udp, 0, 0, 3, 9, 9),           // to itself
	}), true, now)
	if len(list) != 2 {
		t.Fatalf("%+v", list)
	}
	want := api.Connection{
		First: now.Add(-10 * time.Second), Last: now, Proto: "tcp", State: "open", Packets: 9, Bytes: 900, BackPackets: 7, BackBytes: 700,
		From: api.TrafficEnd{Name: "app", Network: "blue", Host: "host1", Addr: app, Port: 40000}, To: api.TrafficEnd{Name: "db", Network: "blue", Host: "host2", Addr: db, Port: 5432},
	}
	if list[0] != want {
		t.Errorf("%+v\nwant\n%+v", list[0], want)
	}
}

// TestAgain: of ports that are used again it is told when the last connection began, and a caller who asks again whom nobody
// answers, or who was silent, is the same.
func TestAgain(t *testing.T) {
	call := func(flags uint8, first, last int) Record {
		return half(app, db, 40000, 5432, tcp, flags, syn, 1, first, last)
	}
	word := func(first, last int) Record { return half(app, db, 40000, 53, udp, 0, 0, 1, first, last) }
	for _, tt := range []struct {
		name    string
		records []Record
		again   int // seconds ago; 0: never
	}{
		{"one", []Record{call(syn, 900, 900)}, 0},
		{"denied, and tried again later", []Record{call(syn, 900, 899), call(syn, 700, 697)}, 700},
		{"denied three times", []Record{call(syn, 900, 899), call(syn, 800, 797), call(syn, 100, 97)}, 100},
		{"denied: Linux asks again after 1, 3, 7, 15, 31, 63 and 127 s", []Record{
			call(syn, 900, 893), call(syn, 885, 885), call(syn, 869, 869), call(syn, 837, 837), call(syn, 773, 773),
		}, 0},
		{"let through, and denied when tried again, which it is asked for twice", []Record{call(syn|ack|fin, 900, 898), call(syn, 700, 693), call(syn, 685, 685)}, 700},
		{"refused", []Record{call(syn|rst, 900, 900), call(syn, 895, 895)}, 895},
		{"silent for long", []Record{call(syn|ack, 900, 800), half(app, db, 40000, 5432, tcp, ack, ack, 1, 400, 300)}, 0},
		{"datagrams", []Record{word(900, 800), word(700, 600), word(580, 570)}, 700},
	} {
		for range 4 {
			list := Join(those(tt.records), false, now)
			rand.Shuffle(len(tt.records), func(i, j int) { tt.records[i], tt.records[j] = tt.records[j], tt.records[i] })
			want := time.Time{}
			if tt.again > 0 {
				want = now.Add(-time.Duration(tt.again) * time.Second)
			}
			if len(list) != 1 || !list[0].Again.Equal(want) || !list[0].First.Equal(now.Add(-900*time.Second)) {
				t.Errorf("%s: %+v, want again at %v", tt.name, list, want)
			}
		}
	}
}

func owned(string, netip.Addr) bool { return true }

// TestForged: what a container sends in another's name is nobody's connection, nor an answer, nor a part of what that one
// sends; nor is what came by an interface of which nobody knows whose it was. What comes by the gateway is. So is what a
// container sent that has gone, also if another one has its address, and what that one sends by the same ports.
func TestForged(t *testing.T) {
	const self = "000000000000000a"
	s := cluster.New(self)
	web, cache := netip.MustParseAddr("10.128.0.7"), "0123456789abcdef"
	for id, a := range map[string]netip.Addr{cache: app, "fedcba9876543210": db, "aaaaaaaaaaaaaaaa": web} {
		e := cluster.Endpoint{ID: id, Network: "blue", Host: self, Name: cmp.Or(whos[a].Name, "web"), Addrs: []netip.Addr{a}, MAC: "02:42:00:00:00:01"}
		if _, _, err := s.Put(e); err != nil {
			t.Fatal(err)
		}
	}
	k := &kernel{counts: map[counter.Key]counter.Count{}}
	const bad = "gvaaaaaaaaaaaa" // web's
	indexes := map[string]uint32{"gv0123456789ab": 1, "gvfedcba987654": 2, bad: 3, "gv0": 4, "": 5, "gvbbbbbbbbbbbb": 6}
	add := func(from, to netip.Addr, sport, dport uint16, flags uint8, port string) counter.Key {
		r := half(from, to, sport, dport, tcp, flags, flags, 1, 0, 0)
		r.Count.First, r.Count.Last, r.Count.Port = time.Now(), time.Now(), port
		key := counter.Key{Half: r.Half, Index: indexes[port]}
		k.counts[key] = r.Count
		return key
	}
	d := New(Config{Self: self, Mode: "on", Counter: k, Snapshot: s.Snapshot, Log: slog.New(slog.DiscardHandler)})
	lists := func(when string, want ...string) {
		t.Helper()
		whole, err := d.Whole(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		began, err := d.Begun(t.Context())
		if err != nil || len(began.Connections) != len(whole.Connections) {
			t.Errorf("%s: began: %v, %+v", when, err, began)
		}
		var list []string
		for _, c := range whole.Connections {
			list = append(list, fmt.Sprintf("%s %d %s %d/%d %s", c.From.Name, c.From.Port, c.To.Name, c.Packets, c.BackPackets, c.State))
		}
		if slices.Sort(list); !slices.Equal(list, want) {
			t.Errorf("%s: %q, want %q", when, list, want)
		}
	}
	add(web, db, 40000, 6379, syn|ack, bad)
	add(db, web, 6379, 40000, syn|ack, bad) // it answers itself
	add(app, db, 40001, 5432, syn|ack, bad) // two others talk, it says
	add(db, app, 5432, 40001, syn|ack, bad)
	add(app, db, 40002, 5432, syn|ack, "gv0123456789ab")
	add(app, db, 40002, 5432, syn|rst, bad) // ... and what is said is not so
	add(out, web, 40003, 80, syn|ack, "gv0")
	add(out, web, 40004, 80, syn|ack, bad)
	add(app, db, 40005, 80, syn|ack, "")
	lists("all", " 40003 web 1/0 open", "app 40002 db 1/0 open", "web 40000 db 1/0 open")
	s.Delete(cluster.Endpoint{ID: cache}.Key(), time.Now()) // it ends before the next look
	add(app, db, 40006, 5432, syn|ack, "gv0123456789ab")
	lists("once the container has gone", " 40003 web 1/0 open", " 40006 db 1/0 open", "app 40002 db 1/0 open", "web 40000 db 1/0 open")
	next := cluster.Endpoint{ID: "bbbbbbbbbbbbbbbb", Network: "blue", Host: self, Name: "next", Addrs: []netip.Addr{app}, MAC: "02:42:00:00:00:02"}
	if _, _, err := s.Put(next); err != nil {
		t.Fatal(err)
	}
	add(app, db, 40002, 5432, syn, "gvbbbbbbbbbbbb")
	add(app, db, 40007, 5432, syn|ack, "gv0123456789ab") // nobody has it any more
	lists("once another one has its address", " 40003 web 1/0 open", "next 40002 db 2/0 open", "next 40006 db 1/0 open", "web 40000 db 1/0 open")
	for key, c := range k.counts { // what is nobody's makes room as the rest does
		c.Last = c.Last.Add(-afterTCP - time.Second)
		k.counts[key] = c
	}
	d.look()
	if len(k.taken) != len(k.counts) {
		t.Errorf("%d of %d have ended", len(k.taken), len(k.counts))
	}
}

// TestTable: what has ended makes room in the kernel and is remembered, bounded; who is gone keeps his name.
func TestTable(t *testing.T) {
	var table table
	counts := map[counter.Key]counter.Count{}
	add := func(r Record) counter.Half { counts[counter.Key{Half: r.Half}] = r.Count; return r.Half }
	idle := add(half(app, db, 1, 80, tcp, syn|ack, syn, 9, 200, 100))
	closed := add(half(app, db, 2, 80, tcp, syn|ack|fin, syn, 9, 20, 6))
	add(half(db, app, 80, 2, tcp, syn|ack|fin, syn|ack, 9, 20, 6))
	add(half(app, db, 3, 80, udp, 0, 0, 1, 29, 29))
	spoken := add(half(app, db, 4, 80, udp, 0, 0, 1, 99, 31))
	multicast := add(half(app, netip.MustParseAddr("ff02::16"), 0, 0, 58, 0, 0, 1, 9, 9))
	ended := map[counter.Half]bool{}
	for _, h := range table.update(counts, func(a netip.Addr) Who { return whos[a] }, owned, now) {
		ended[h.Half] = true
		table.end(h, counts[h])
		delete(counts, h)
	}
	if len(ended) != 4 || !ended[closed] || !ended[closed.Back()] || !ended[spoken] || !ended[multicast] || len(table.records()) != 5 {
		t.Errorf("ended: %+v; records %+v", ended, table.records())
	}
	table.update(counts, func(netip.Addr) Who { return Who{} }, owned, now) // all containers have gone
	if r := table.live[idle]; r.Src.Name != "app" || r.Dst.Name != "db" {
		t.Errorf("%+v", r)
	}
	// A scan fills the room: what is silent for two seconds goes.
	for port := range counter.Room {
		add(half(app, db, 50000, uint16(port+1), tcp, syn, syn, 1, 3, 3))
	}
	if n := len(table.update(counts, func(netip.Addr) Who { return Who{} }, owned, now)); n < counter.Room {
		t.Errorf("%d have ended", n)
	}
	for h, c := range counts {
		table.end(h, c)
	}
	for range 3 * maxPast {
		table.past = append(table.past, new(Record))
		table.live[idle] = new(Record)
		table.end(counter.Key{Half: idle}, counter.Count{})
	}
	if len(table.past) > maxPast {
		t.Errorf("%d are remembered", len(table.past))
	}
}

// TestTotals: each connection that ended is counted once, on its caller's host, by what became of it; what there was no room for, too.
func TestTotals(t *testing.T) {
	self := cluster.NodeID("000000000000000a")
	s, other := cluster.New(self), cluster.New("000000000000000b")
	for _, e := range []cluster.Endpoint{{ID: "0123456789abcdef", Host: self, Addrs: []netip.Addr{app}}, {ID: "aaaaaaaaaaaaaaaa", Host: "000000000000000b", Addrs: []netip.Addr{db}}} {
		e.Network, e.Name, e.MAC = "blue", e.ID, "02:42:00:00:00:01"
		of := other
		if e.Host == self {
			of = s
		}
		if _, _, err := of.Put(e); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Merge(slices.Collect(other.Snapshot().Records())); err != nil {
		t.Fatal(err)
	}
	k := &kernel{counts: map[counter.Key]counter.Count{}, lost: counter.Lost{Packets: 7}}
	d := New(Config{Self: self, Mode: "on", Counter: k, Snapshot: s.Snapshot, Log: slog.New(slog.DiscardHandler)})
	if n := d.Totals(); n.Open != 0 || len(n.Ended) != 5 || n.Lost != 0 || d.isOn() {
		t.Errorf("before anything is counted: %+v", n)
	}
	d.begin()
	add := func(from, to netip.Addr, sport, dport uint16, proto, flags, opened uint8, packets uint64, last time.Duration) {
		h := counter.Half{Src: from, Dst: to, SrcPort: sport, DstPort: dport, Proto: proto}
		port := "gv0123456789ab"
		if from != app {
			port = "gv0"
		}
		at := time.Now().Add(-last)
		k.counts[counter.Key{Half: h}] = counter.Count{Packets: packets, First: at.Add(-time.Second), Last: at, Flags: flags, Opened: opened, Port: port}
	}
	add(app, out, 40000, 80, tcp, syn|ack|fin, syn, 5, 9*time.Second) // closed: both halves are here
	add(out, app, 80, 40000, tcp, syn|ack|fin, syn|ack, 5, 9*time.Second)
	add(app, out, 40001, 80, tcp, syn, syn, 3, 9*time.Second) // nobody answers
	add(app, out, 40002, 80, tcp, syn, syn, 1, 9*time.Second) // refused
	add(out, app, 80, 40002, tcp, rst|ack, rst|ack, 1, 9*time.Second)
	add(app, db, 40003, 80, tcp, syn, syn, 1, 9*time.Second)                 // the other host knows
	add(app, db, 40004, 80, tcp, syn|ack|rst, syn, 4, 9*time.Second)         // reset
	add(app, db, 80, 40005, tcp, syn|ack|fin|rst, syn|ack, 4, 9*time.Second) // called by db, whose host counts it
	add(app, db, 40006, 80, tcp, syn|ack, syn, 4, time.Second)               // goes on
	add(app, db, 80, 40007, tcp, syn|ack, syn|ack, 4, time.Second)
	k.lost.Packets = 10
	d.look()
	for key := range k.taken {
		delete(k.counts, key)
	}
	k.lost.Packets = 12
	d.look()
	n := d.Totals()
	if n.Open != 1 || n.Lost != 5 || fmt.Sprint(n.Ended) != "map[answered:1 refused:1 reset:1 unanswered:1 unknown:1]" {
		t.Errorf("%+v", n)
	}
}

// kernel is a Counter that counts what a test says.
type kernel struct {
	counts map[counter.Key]counter.Count
	taken  map[counter.Key]bool
	lost   counter.Lost
	err    error
}

func (k *kernel) Start() error   { return k.err }
func (k *kernel) Follow() error  { return nil }
func (k *kernel) Runs() bool     { return k.err == nil }
func (k *kernel) Compiled() bool { return true }
func (k *kernel) Stop() error    { return nil }
func (k *kernel) Close() error   { return nil }
func (k *kernel) Read() (map[counter.Key]counter.Count, counter.Lost, error) {
	return k.counts, k.lost, nil
}
func (k *kernel) Take(h counter.Key) (counter.Count, error) {
	if k.taken == nil {
		k.taken = map[counter.Key]bool{}
	}
	k.taken[h] = true
	return k.counts[h], nil
}

// TestAll: the halves of several hosts come together; of a host that cannot say anything it is said why.
func TestAll(t *testing.T) {
	hosts := []cluster.NodeID{"000000000000000a", "000000000000000b", "000000000000000c", "000000000000000d", "000000000000000e"}
	states := cluster.New(hosts[0])
	for i, id := range hosts {
		s := cluster.New(id)
		if i == 0 {
			s = states
		}
		if _, _, err := s.Put(cluster.Node{ID: id, Name: fmt.Sprintf("host%d", i+1), VTEP: netip.MustParseAddr("192.0.2.1")}); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			continue
		}
		var recs []cluster.Record
		for r := range s.Snapshot().Records() {
			recs = append(recs, r)
		}
		if _, err := states.Merge(recs); err != nil {
			t.Fatal(err)
		}
	}
	snap := states.Snapshot()
	desks := map[string]*Desk{}
	for i, id := range hosts[:3] {
		k := &kernel{counts: map[counter.Key]counter.Count{}, lost: counter.Lost{Packets: uint64(i)}}
		mode := "on"
		switch i {
		case 0:
			r := half(app, db, 40000, 5432, tcp, syn|ack, syn, 5, 2, 1)
			r.Count.First, r.Count.Last = time.Now().Add(-2*time.Second), time.Now()
			k.counts[counter.Key{Half: r.Half}] = r.Count
		case 1:
			r := half(db, app, 5432, 40000, tcp, syn|ack, syn|ack, 7, 2, 1)
			r.Count.First, r.Count.Last = time.Now().Add(-2*time.Second), time.Now()
			k.counts[counter.Key{Half: r.Half}] = r.Count
		case 2:
			mode = "off"
		}
		desks[string(id)] = New(Config{
			Self: id, Mode: mode, Counter: k, Snapshot: func() *cluster.Snapshot { return snap }, Log: slog.New(slog.DiscardHandler),
			Alive: func() []string { return []string{string(hosts[1]), string(hosts[2]), string(hosts[4])} },
			Call: func(ctx context.Context, node, method string, body []byte) ([]byte, error) {
				d := desks[node]
				if d == nil {
					return nil, fmt.Errorf("call traffic.list on host 00aa: %w", &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)})
				}
				return d.Methods()[method](ctx, "", body)
			},
		})
	}
	all, err := desks[string(hosts[0])].Traffic(t.Context(), api.TrafficOf{All: true})
	if err != nil || len(all.Connections) != 1 || all.Connections[0].Packets != 5 || all.Connections[0].BackPackets != 7 || all.Connections[0].State != "open" {
		t.Errorf("%v, %+v", err, all)
	}
	said := ""
	for _, h := range all.Hosts {
		said += h.Name + ": " + h.Error + "\n"
	}
	if want := "host1: \nhost2: \nhost3: it is off: set GRAPEVINE_TRAFFIC=auto\nhost5: its agent could not be asked (connection refused): `grapevine status` says whether it is there, `grapevine doctor` what keeps it away\nhost4: it does not answer\n"; said != want {
		t.Errorf("%s\nwant\n%s", said, want)
	}
	alone, err := desks[string(hosts[0])].Traffic(t.Context(), api.TrafficOf{})
	if err != nil || len(alone.Connections) != 1 || alone.Connections[0].BackPackets != 0 || alone.Connections[0].State != "open" {
		t.Errorf("%v, %+v", err, alone)
	}
	if _, err := desks[string(hosts[2])].Traffic(t.Context(), api.TrafficOf{}); err == nil || !strings.Contains(err.Error(), "it is off") {
		t.Errorf("off: %v", err)
	}
}

// TestShare: however many hosts there are, what they all answer is bounded, and each says its newest; an agent before
// this one asks for nothing, and gets what it is used to.
func TestShare(t *testing.T) {
	for _, hosts := range []int{1, 3, 20, 100, 1000} {
		if each := shareOf(hosts); each < leastRecords || each > maxRecords || each*hosts > max(maxAll, maxRecords) {
			t.Errorf("%d hosts are asked for %d each", hosts, each)
		}
	}
	k := &kernel{counts: map[counter.Key]counter.Count{}}
	for i := range 200 {
		r := half(app, db, uint16(i), 1, tcp, syn, syn, 1, 0, 0)
		r.Count.First = time.Now().Add(-time.Duration(i) * time.Millisecond)
		r.Count.Last = r.Count.First
		k.counts[counter.Key{Half: r.Half}] = r.Count
	}
	d := New(Config{Mode: "on", Counter: k, Snapshot: cluster.New("000000000000000a").Snapshot, Log: slog.New(slog.DiscardHandler)})
	for _, c := range []struct {
		body       []byte
		most, left int
	}{{nil, 200, 0}, {[]byte{0xa1, 0x01, 0x18, 60}, 60, 140}, {[]byte{0xa1, 0x01, 0x19, 0xff, 0xff}, 200, 0}} {
		reply, err := d.Methods()[method](t.Context(), "", c.body)
		if err != nil {
			t.Fatal(err)
		}
		var a answer
		if err := cbor.Unmarshal(reply, &a); err != nil {
			t.Fatal(err)
		}
		if len(a.Records) != c.most || a.Left != c.left || a.Records[0].Half.SrcPort != 0 {
			t.Errorf("asked with %x: %d records, %d left out, the first from port %d", c.body, len(a.Records), a.Left, a.Records[0].Half.SrcPort)
		}
	}
}

// TestThousand: of 1,000 hosts with hundreds of connections each, who asks for two containers' asks their hosts alone, and
// who asks for one's, a network's or a port's gets what is wanted and nothing else; what all say together is bounded.
func TestThousand(t *testing.T) {
	const hosts, each = 1000, 200
	id := func(i int) cluster.NodeID { return cluster.NodeID(fmt.Sprintf("%016x", i+1)) }
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 128, byte(i >> 8), byte(i)}) }
	mine := cluster.New(id(0))
	var records []cluster.Record
	for i := range hosts {
		s := cluster.New(id(i))
		if i == 0 {
			s = mine
		}
		for _, v := range []cluster.Body{
			cluster.Node{ID: id(i), Name: fmt.Sprintf("host%d", i+1), VTEP: netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})},
			cluster.Endpoint{ID: fmt.Sprintf("%016x", i+1), Network: "blue", Host: id(i), Name: fmt.Sprintf("c%d", i+1), Addrs: []netip.Addr{addr(i)}, MAC: "02:42:00:00:00:01"},
		} {
			if _, _, err := s.Put(v); err != nil {
				t.Fatal(err)
			}
		}
		records = slices.AppendSeq(records, s.Snapshot().Records())
	}
	if _, err := mine.Merge(records); err != nil {
		t.Fatal(err)
	}
	snap := mine.Snapshot()
	// What a host has counted: containers of others talk to its own, and the other way round.
	counted := func(i int) map[counter.Key]counter.Count {
		counts := map[counter.Key]counter.Count{}
		for n := range each {
			at := time.Now().Add(-time.Duration(n) * time.Millisecond)
			h := counter.Half{Src: addr(i), Dst: addr((i + n + 1) % hosts), SrcPort: uint16(40000 + n), DstPort: uint16(80 + n%4), Proto: tcp}
			counts[counter.Key{Half: h}] = counter.Count{Packets: 5, Bytes: 500, First: at, Last: at, Flags: syn | ack, Opened: syn, Port: link.PortName(fmt.Sprintf("%016x", i+1))}
		}
		return counts
	}
	desk := func(i int) *Desk {
		return New(Config{Self: id(i), Mode: "on", Counter: &kernel{counts: counted(i)}, Snapshot: func() *cluster.Snapshot { return snap }, Log: slog.New(slog.DiscardHandler)})
	}
	var mu sync.Mutex
	asked, bytes := 0, 0
	few := map[string]*Desk{} // who has something to say; the others are as the last one of these
	for _, i := range []int{1, 2, 3, 499} {
		few[string(id(i))] = desk(i)
	}
	asker := desk(0)
	asker.cfg.Alive = func() (list []string) {
		for i := 1; i < hosts; i++ {
			list = append(list, string(id(i)))
		}
		return list
	}
	asker.cfg.Call = func(ctx context.Context, node, method string, body []byte) ([]byte, error) {
		d := few[node]
		if d == nil {
			d = few[string(id(499))]
		}
		reply, err := d.Methods()[method](ctx, "", body)
		mu.Lock()
		defer mu.Unlock()
		asked, bytes = asked+1, bytes+len(body)+len(reply)
		return reply, err
	}
	for _, tt := range []struct {
		what        string
		of          api.TrafficOf
		asked       int
		least, most int // bytes
		connections int
	}{
		{"this host", api.TrafficOf{}, 0, 0, 0, each},
		{"two containers", api.TrafficOf{All: true, Ends: []string{"c2", "c3"}}, 2, 100, 5_000, 1},
		{"one container", api.TrafficOf{All: true, Ends: []string{"blue/c4"}}, hosts - 1, 10_000, 1_000_000, -1},
		{"a container that is silent", api.TrafficOf{All: true, Ends: []string{"10.200.0.1"}}, hosts - 1, 10_000, 200_000, 0},
		{"another network", api.TrafficOf{All: true, Network: "red"}, hosts - 1, 10_000, 200_000, 0},
		{"all", api.TrafficOf{All: true}, hosts - 1, 1_000_000, 20_000_000, -1},
	} {
		asked, bytes = 0, 0
		got, err := asker.Traffic(t.Context(), tt.of)
		if err != nil || asked != tt.asked || bytes < tt.least || bytes > tt.most || tt.connections >= 0 && len(got.Connections) != tt.connections {
			t.Errorf("%s: %v, %d hosts asked, %d bytes, %d connections", tt.what, err, asked, bytes, len(got.Connections))
		}
		t.Logf("%-28s %4d hosts asked, %9d bytes, %6d connections", tt.what, asked, bytes, len(got.Connections))
	}
}

// TestMemory: as many connections as there is room for, a port scan's worth that have ended, and somebody who asks for
// all of it take less than 40 MB.
func TestMemory(t *testing.T) {
	k := &kernel{counts: map[counter.Key]counter.Count{}}
	for i := range counter.Room {
		r := half(app, db, uint16(i%60000), uint16(i/60000+1), tcp, syn, syn, 1, 0, 0)
		r.Count.Last = time.Now().Add(time.Hour) // however slow the machine is, none of it has ended
		k.counts[counter.Key{Half: r.Half}] = r.Count
	}
	d := New(Config{Mode: "on", Counter: k, Snapshot: cluster.New("000000000000000a").Snapshot, Log: slog.New(slog.DiscardHandler)})
	used := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := used()
	d.begin()
	d.look()
	for i := range 60000 {
		r := half(app, db, uint16(i), 1, tcp, syn, syn, 1, 9, 9)
		d.table.past = append(d.table.past, &r)
		d.table.end(counter.Key{}, counter.Count{})
		d.table.live[counter.Half{}] = new(Record)
	}
	d.look()
	all, err := d.Traffic(t.Context(), api.TrafficOf{})
	after := used()
	if err != nil || len(all.Connections) < counter.Room {
		t.Errorf("%v, %d connections", err, len(all.Connections))
	}
	if took := (after - before) / 1_000_000; took > 40 {
		t.Errorf("%d MB", took)
	} else {
		t.Logf("%d MB, with %d connections in the answer", took, len(all.Connections))
	}
	runtime.KeepAlive(all)
	runtime.KeepAlive(d)
}
