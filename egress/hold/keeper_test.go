package hold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/lan"
	"github.com/grapevine-net/grapevine/host/nat"
	"github.com/grapevine-net/grapevine/replica"
	"github.com/grapevine-net/grapevine/replica/replicatest"
)

const self, other = cluster.NodeID("0000000000000001"), cluster.NodeID("0000000000000002")

var (
	mail    = netip.MustParseAddr("192.0.2.25")
	subnet  = netip.MustParsePrefix("10.128.4.0/22")
	ownMAC  = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	itsMAC  = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	strange = net.HardwareAddr{2, 0, 0, 0, 0, 9}
)

// world is a keeper on a LAN, and what it does, in order.
type world struct {
	t       *testing.T
	k       *Keeper
	r       *replica.Replica
	now     time.Time
	dead    map[cluster.NodeID]bool
	unheard map[cluster.NodeID]bool
	place   lan.Place
	at      netip.Addr       // that place is about; none: mail
	left    []netip.Addr     // ours as well
	who     net.HardwareAddr // that answers for the address
	mu      sync.Mutex       // of what is above and of did: egresses are seen to beside each other, and it is also asked beside the rounds
	did     []string
	looks   int                    // at the LAN
	leaves  string                 // the address that NAT gives
	fails   error                  // of NAT
	asked   bool                   // just now, so that it is not known who is heard
	mute    error                  // of telling the LAN
	claim   func(net.HardwareAddr) // has the keeper hear that another machine has the address; nil: it does not listen
}

func (w *world) Guard(_ string, _ netip.Addr, claimed func(net.HardwareAddr)) (end func(), over <-chan struct{}, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ch := make(chan struct{})
	w.claim = claimed
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.claim = nil
		close(ch)
	}, ch, nil
}
func (w *world) Look() (View, error)               { w.looks++; return w, nil }
func (w *world) Announce(string, netip.Addr) error { w.does("announce"); return w.mute }
func (w *world) Linked(string) bool                { return !w.place.Cut }
func (w *world) Probe(context.Context, string, netip.Addr) (net.HardwareAddr, error) {
	w.does("probe")
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.who, nil
}

func (w *world) Find(a netip.Addr) lan.Place {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.place
	if w.at.IsValid() && a != w.at {
		p.Here = slices.Contains(w.left, a)
		p.Ours = p.Here
	}
	return p
}

func (w *world) Add(_ string, a netip.Addr) error {
	w.does("add")
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.place.Ours {
		w.left = append(w.left, w.at)
	}
	w.at = a
	w.place.Here, w.place.Ours = true, true
	return nil
}

func (w *world) Remove(a netip.Addr) error {
	w.does("remove")
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.left, a); i >= 0 {
		w.left = slices.Delete(w.left, i, i+1)
		return nil
	}
	w.place.Here, w.place.Ours = false, false
	return nil
}

func (w *world) Ours() (list []netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if list = slices.Clone(w.left); w.place.Ours {
		list = append(list, w.at)
	}
	return list
}

func (w *world) serve(sources []nat.Source) error {
	if w.fails != nil {
		return w.fails
	}
	w.does(fmt.Sprint("nat ", len(sources)))
	w.leaves = ""
	if len(sources) > 0 {
		w.leaves = sources[0].Address.String()
	}
	return nil
}

// placed says what the switch would do now.
func (w *world) placed(context.Context) error {
	h, _ := cluster.Get[cluster.EgressHolder](w.r.Snapshot(), "mail")
	w.does(fmt.Sprintf("flows of %.1s, %v", strings.TrimLeft(string(h.Host), "0"), w.k.Serves("mail")))
	return nil
}

func newWorld(t *testing.T, gateways ...string) *world {
	w := &world{t: t, dead: map[cluster.NodeID]bool{}, place: lan.Place{NIC: "eth0", MAC: ownMAC}}
	w.r = replicatest.New(t, self, cluster.Network{Name: "blue", VNID: 5}, cluster.Subnet{Prefix: subnet, Network: "blue"}, cluster.Node{ID: self, Name: "host1"},
		cluster.Egress{Name: "mail", Networks: []string{"blue"}, Addrs: []netip.Addr{mail}, Gateways: gateways})
	w.k = New(Config{Self: self, Replica: w.r, Alive: func(id cluster.NodeID) bool { return !w.dead[id] }, Hear: func(id cluster.NodeID) (heard, known bool) { return !w.unheard[id] && !w.dead[id], !w.asked }, LAN: w, Log: slog.New(slog.DiscardHandler)})
	w.now = w.k.started.Add(patience + 1)
	w.k.Begin(w.serve, w.placed)
	w.did = nil
	return w
}

func (w *world) put(bodies ...cluster.Body) {
	w.t.Helper()
	replicatest.Put(w.t, w.r, bodies...)
}

func (w *world) does(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.did = append(w.did, what)
}

// answers has a machine answer for the address; nil: none does.
func (w *world) answers(who net.HardwareAddr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.who = who
}

// done is what was done since it was forgotten.
func (w *world) done() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.did)
}

func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.did = nil
}

func (w *world) round() string {
	w.forget()
	w.k.round(w.t.Context(), w.r.Snapshot(), w.now)
	w.now = w.now.Add(tick)
	return strings.Join(slices.DeleteFunc(w.done(), func(s string) bool { return s == "announce" }), "; ")
}

// step lets so much time pass. Who asks beside the rounds has asked by the end of each: the world's time is not the machine's.
func (w *world) step(d time.Duration) {
	for range d / tick {
		w.k.step(w.t.Context(), w.r.Snapshot(), w.now)
		for _, h := range w.k.held {
			for h.asking.Load() {
				runtime.Gosched()
			}
		}
		w.now = w.now.Add(tick)
	}
}

func (w *world) holder() cluster.NodeID {
	h, _ := cluster.Get[cluster.EgressHolder](w.r.Snapshot(), "mail")
	return h.Host
}

// TestOrder: NAT is in place before the record and the flows lead anybody here, and goes after the flows have.
func TestOrder(t *testing.T) {
	w := newWorld(t, "host1")
	if got, want := w.round(), "probe; add; nat 1; flows of 1, true"; got != want {
		t.Errorf("taking it: %s; want %s", got, want)
	}
	if n := w.k.Notes()["mail"]; w.holder() != self || n.Any() {
		t.Errorf("%s holds it, %+v", w.holder(), n)
	}
	if got := w.round(); got != "" {
		t.Errorf("holding it: %s", got)
	}
	// Another host has it by the record now, as after a partition.
	w.put(cluster.EgressHolder{Egress: "mail", Host: other, MAC: itsMAC.String()}, cluster.Node{ID: self, Name: "host2"})
	if got, want := w.round(), "remove; flows of 2, false; nat 0"; got != want {
		t.Errorf("lost: %s; want %s", got, want)
	}
	if w.place.Here {
		t.Error("it has the address yet")
	}
	// It is removed altogether.
	w.put(cluster.EgressHolder{Egress: "mail"}, cluster.Node{ID: self, Name: "host1"})
	w.now = w.now.Add(time.Minute)
	if w.round(); !w.place.Here || w.holder() != self {
		t.Fatal("it does not take it again")
	}
	if _, err := w.r.Update(func(tx *replica.Tx) error { tx.Delete(cluster.Egress{Name: "mail"}.Key()); return nil }); err != nil {
		t.Fatal(err)
	}
	if got, want := w.round(), "flows of 1, false; nat 0; remove"; got != want {
		t.Errorf("of no egress: %s; want %s", got, want)
	}
}

// TestTakes: what another machine answers for is not taken, least of all from a holder whose agent alone is dead.
func TestTakes(t *testing.T) {
	w := newWorld(t, "host1")
	w.answers(strange)
	if got := w.round(); got != "probe" {
		t.Errorf("occupied: %s", got)
	}
	if n := w.k.Notes()["mail"]; n.Occupied.String() != strange.String() || n.Silent || w.holder() != "" {
		t.Errorf("occupied: %+v", n)
	}
	w.dead[other] = true
	w.answers(itsMAC)
	w.put(cluster.EgressHolder{Egress: "mail", Host: other, MAC: itsMAC.String()})
	w.now = w.now.Add(retry)
	if w.round(); w.k.Notes()["mail"].Silent {
		t.Error("of a host that was forgotten nothing is said")
	}
	replicatest.Hear(t, w.r, other, cluster.Node{ID: other, Name: "host2"})
	w.now = w.now.Add(retry)
	if w.round(); !w.k.Notes()["mail"].Silent || w.place.Here || w.holder() != other {
		t.Errorf("taken from a host that lives: %+v", w.k.Notes()["mail"])
	}
	w.answers(nil)
	w.now = w.now.Add(retry)
	if w.round(); !w.place.Here || w.holder() != self {
		t.Error("not taken from a host that is dead")
	}
	// An administrator takes it away: it comes back.
	w.place.Here, w.place.Ours = false, false
	if w.round(); !w.place.Here || !w.k.Serves("mail") {
		t.Error("it does not come back")
	}
	// The interface goes: others may have it.
	w.place = lan.Place{}
	if w.round(); w.holder() != "" || w.k.Serves("mail") || !w.k.Notes()["mail"].Unfit {
		t.Errorf("held by %q without an interface: %+v", w.holder(), w.k.Notes()["mail"])
	}
}

// TestLost: after a partition the holder that reads another's name lets go, also while that one is in doubt here, and
// does not take the address back from it.
func TestLost(t *testing.T) {
	w := newWorld(t, "host1")
	if w.round(); w.holder() != self {
		t.Fatal("it does not take it")
	}
	w.dead[other] = true
	w.put(cluster.EgressHolder{Egress: "mail", Host: other, MAC: itsMAC.String()})
	if got, want := w.round(), "remove; flows of 2, false; nat 0"; got != want {
		t.Errorf("lost: %s; want %s", got, want)
	}
	w.answers(itsMAC)
	if got := w.round(); got != "probe" || w.holder() != other || w.place.Here {
		t.Errorf("then: %s, and %s holds it", got, w.holder())
	}
}

// TestAdministrators: an address that an administrator has given to this host is taken as it is, and stays.
func TestAdministrators(t *testing.T) {
	w := newWorld(t, "host1")
	w.place.Here = true
	if got := w.round(); got != "probe; nat 1; flows of 1, true" {
		t.Errorf("taking it: %s", got)
	}
	w.put(cluster.EgressHolder{Egress: "mail", Host: other}, cluster.Node{ID: self, Name: "host2"})
	if got := w.round(); strings.Contains(got, "remove") || !w.place.Here || !w.k.Notes()["mail"].Twice {
		t.Errorf("lost: %s, %+v", got, w.k.Notes()["mail"])
	}
}

// TestBegin: the next agent of a holder goes on at once; of one that was off, or without NAT, not.
func TestBegin(t *testing.T) {
	w := newWorld(t, "host1")
	w.put(cluster.EgressHolder{Egress: "mail", Host: self})
	for _, here := range []bool{false, true} {
		w.place.Here = here
		next := New(w.k.cfg)
		if next.Begin(w.serve, w.placed); next.Serves("mail") != here {
			t.Errorf("the address is here: %v, and it serves: %v", here, next.Serves("mail"))
		}
		next.started = w.now
		next.round(t.Context(), w.r.Snapshot(), w.now)
		if !here && w.place.Here {
			t.Error("it takes the address before it knows what the others do")
		}
	}
	w = newWorld(t, "host1")
	w.fails = errors.New("no iptables")
	if w.round(); w.holder() != "" || w.place.Here || w.k.Serves("mail") {
		t.Errorf("it holds the address without NAT: %q, %+v", w.holder(), w.place)
	}
}

// TestQuorum: a holder with a quorum that was stalled lets go if the others do not tell at once that they are there, and takes
// the address again when they do and nobody has taken it; an agent that goes on with what the one before it had waits a moment for them.
func TestQuorum(t *testing.T) {
	w := newWorld(t, "host1", "host2", "host3")
	third := cluster.NodeID("0000000000000003")
	replicatest.Hear(t, w.r, other, cluster.Node{ID: other, Name: "host2"})
	replicatest.Hear(t, w.r, third, cluster.Node{ID: third, Name: "host3"})
	w.put(cluster.Egress{Name: "mail", Networks: []string{"blue"}, Addrs: []netip.Addr{mail}, Gateways: []string{"host1", "host2", "host3"}, Quorum: true},
		cluster.EgressHolder{Egress: "mail", Host: self})
	step := func() {
		w.k.step(t.Context(), w.r.Snapshot(), w.now)
		w.now = w.now.Add(tick)
	}
	again := func() {
		t.Helper()
		if step(); w.place.Here {
			t.Error("it takes the address again before it can have heard who took it meanwhile")
		}
		w.now = w.now.Add(2 * turn)
		if step(); !w.place.Here || !w.k.Serves("mail") {
			t.Error("it has heard others, none of whom took the address, and does not hold it")
		}
	}
	again()
	w.unheard, w.asked = map[cluster.NodeID]bool{other: true, third: true}, true
	if step(); !w.place.Here || !w.k.Serves("mail") {
		t.Error("it lets go before the others can have said that they are there")
	}
	w.asked = false
	if step(); w.place.Here || w.k.Serves("mail") {
		t.Error("it holds the address, and has heard nobody since it was stalled")
	}
	w.now = w.now.Add(time.Minute)
	if step(); w.place.Here {
		t.Error("it takes the address, and has heard nobody since it was stalled")
	}
	w.unheard = map[cluster.NodeID]bool{third: true}
	again()

	// The others tell that they are there before they tell that one of them took the address.
	w.unheard = map[cluster.NodeID]bool{other: true, third: true}
	step()
	w.unheard = nil
	step()
	w.put(cluster.EgressHolder{Egress: "mail", Host: other})
	w.now = w.now.Add(time.Minute)
	if step(); w.place.Here {
		t.Error("it takes the address from who took it while it was stalled")
	}
	w.put(cluster.EgressHolder{Egress: "mail", Host: self})
	again()

	w.unheard = map[cluster.NodeID]bool{other: true, third: true}
	next := New(w.k.cfg)
	next.Begin(w.serve, w.placed)
	for _, young := range []bool{true, false} {
		next.started = w.now
		if !young {
			w.now = w.now.Add(patience + 1)
		}
		next.round(t.Context(), w.r.Snapshot(), w.now)
		if w.place.Here != young || next.Serves("mail") != young {
			t.Errorf("the agent is young: %v, and it holds the address: %v", young, w.place.Here)
		}
	}
}

// TestRest: while nothing is to be done the LAN is looked at once a second for all egresses, and at once when a host
// falls silent.
func TestRest(t *testing.T) {
	w := newWorld(t, "host2")
	replicatest.Hear(t, w.r, other, cluster.Node{ID: other, Name: "host2"})
	w.put(cluster.EgressHolder{Egress: "mail", Host: other}, cluster.Egress{Name: "post", Networks: []string{"red"}, Addrs: []netip.Addr{mail.Next()}, Gateways: []string{"host2"}})
	const seconds = 20
	steps := func() (looks int) {
		w.looks = 0
		for range seconds * int(time.Second/tick) {
			if !w.k.step(t.Context(), w.r.Snapshot(), w.now) {
				t.Error("nothing is to be looked after")
			}
			w.now = w.now.Add(tick)
		}
		return w.looks
	}
	if n := steps(); n != seconds {
		t.Errorf("in %d seconds %d looks at the LAN", seconds, n)
	}
	w.looks, w.dead[other] = 0, true
	if w.k.step(t.Context(), w.r.Snapshot(), w.now); w.looks != 1 {
		t.Errorf("a host falls silent: %d looks", w.looks)
	}
}

// TestCut: a holder whose link is gone holds the address for a moment, and then leaves it to another gateway that can have it, which it
// tells; if there is none it stays the holder, and has it again when the link is back and nobody answers for it.
func TestCut(t *testing.T) {
	for what, tt := range map[string]struct {
		unfit, dead, own bool
		leaves           bool
	}{
		"another gateway": {leaves: true}, "one that says that it cannot": {unfit: true}, "one that is in doubt": {dead: true}, "no way to tell it": {own: true},
	} {
		w := newWorld(t, "host1", "host2")
		says := []cluster.Body{cluster.Node{ID: other, Name: "host2"}}
		if tt.unfit {
			says = append(says, cluster.Unfit{Host: other, Egresses: []cluster.UnfitCase{{Egress: "mail", NIC: "eth0"}}})
		}
		replicatest.Hear(t, w.r, other, says...)
		if tt.own { // in this world all addresses are on one interface
			w.put(cluster.Node{ID: self, Name: "host1", VTEP: netip.MustParseAddr("192.0.2.1")})
		}
		w.dead[other] = tt.dead
		w.now = w.now.Add(time.Minute)
		for range 2 * turn / tick {
			w.k.step(t.Context(), w.r.Snapshot(), w.now)
			w.now = w.now.Add(tick)
		}
		if w.holder() != self || !w.place.Here {
			t.Fatalf("%s: it does not take it: %+v", what, w.k.Notes())
		}
		w.place.Cut = true
		left := time.Duration(0)
		for after := time.Duration(0); after < 2*time.Second; after += tick {
			if w.k.step(t.Context(), w.r.Snapshot(), w.now); !w.place.Here && left == 0 {
				left = after
			}
			w.now = w.now.Add(tick)
			said, _ := cluster.Get[cluster.Unfit](w.r.Snapshot(), string(self))
			if n := w.k.Notes()["mail"]; n.Cut != "eth0" || !n.Any() || !slices.Equal(said.Egresses, []cluster.UnfitCase{{Egress: "mail", NIC: "eth0"}}) {
				t.Errorf("%s: %v after the link is gone: %+v, others hear %v", what, after, n, said)
			}
		}
		if left != linkless || tt.leaves != (w.holder() == "") || w.k.Serves("mail") == tt.leaves {
			t.Errorf("%s: left after %v, held by %q", what, left, w.holder())
		}
		w.place.Cut = false
		w.forget()
		w.k.step(t.Context(), w.r.Snapshot(), w.now)
		if _, said := cluster.Get[cluster.Unfit](w.r.Snapshot(), string(self)); said {
			t.Errorf("%s: the link is back, and others hear that it is not", what)
		}
		if !tt.leaves && (!slices.Contains(w.done(), "announce") || w.k.Notes()["mail"].Any() || !w.k.Serves("mail")) {
			t.Errorf("%s: the link is back: %v, %+v", what, w.done(), w.k.Notes()["mail"])
		}
	}
}

// TestTwice: of two egresses with one address, as two sides of a partition may make them, the one that comes second takes nothing away
// from the first, on the host of the one, of the other, or of both. What is its own it leaves.
func TestTwice(t *testing.T) {
	for _, holder := range []cluster.NodeID{self, other, ""} {
		w := newWorld(t, "host1")
		if w.round(); w.holder() != self {
			t.Fatal("it does not take it")
		}
		w.put(cluster.Egress{Name: "post", Networks: []string{"red"}, Addrs: []netip.Addr{mail, mail6}, Gateways: []string{"host1"}}, cluster.EgressHolder{Egress: "post", Host: holder})
		l := &table{here: map[netip.Addr]bool{mail: true, mail6: true}, theirs: map[netip.Addr]net.HardwareAddr{}}
		w.k.cfg.LAN = l
		for range 3 {
			if w.round(); !l.here[mail] || l.here[mail6] || !w.k.Serves("mail") || w.k.Serves("post") || w.k.Notes()["post"].Any() {
				t.Fatalf("post was held by %q: here are %v, %+v", holder, l.here, w.k.Notes())
			}
		}
	}
}

// TestMute: that the LAN cannot be told is said for as long as it is so.
func TestMute(t *testing.T) {
	w := newWorld(t, "host1")
	w.round()
	w.mute = errors.New("network is down")
	w.now = w.now.Add(reannounce)
	for range 15 {
		if w.round(); w.k.Notes()["mail"].Err == nil {
			t.Fatalf("%+v", w.k.Notes()["mail"])
		}
	}
	w.mute = nil
	w.now = w.now.Add(retry)
	if w.round(); w.k.Notes()["mail"].Any() {
		t.Errorf("then: %+v", w.k.Notes()["mail"])
	}
}

// TestStray: an address of ours that is on another interface than it is to be at, as when an administrator has moved the LAN's subnet,
// comes to the one where it is to be.
func TestStray(t *testing.T) {
	w := newWorld(t, "host1")
	w.round()
	w.place.Here = false
	if got, want := w.round(), "remove; probe; add; flows of 1, true"; got != want || !w.place.Here || w.holder() != self || !w.k.Serves("mail") {
		t.Errorf("%s; want %s", got, want)
	}
}

// TestRival: another machine that takes the address later is seen, and that it is gone.
func TestRival(t *testing.T) {
	w := newWorld(t, "host1")
	if w.round(); w.holder() != self {
		t.Fatal("it does not take it")
	}
	for _, who := range []net.HardwareAddr{strange, nil} {
		w.answers(who)
		for range 15 { // told ever less often
			w.now = w.now.Add(reannounce)
			w.round()
			for h := w.k.held["mail"]; h.asking.Load(); {
				runtime.Gosched()
			}
		}
		if n := w.k.Notes()["mail"]; n.Rival.String() != who.String() || n.Any() || w.holder() != self || !w.k.Serves("mail") {
			t.Errorf("%v answers: %+v", who, n)
		}
	}
}

// TestGrows: a subnet that comes to a network later leads out when NAT has it, and the switch hears of it then.
func TestGrows(t *testing.T) {
	w := newWorld(t, "host1")
	if w.round(); !w.k.Leads("mail", subnet) {
		t.Fatal("it does not lead out what it holds the address for")
	}
	late := netip.MustParsePrefix("10.128.8.0/22")
	w.put(cluster.Subnet{Prefix: late, Network: "blue"})
	if !w.k.Leads("mail", subnet) || w.k.Leads("mail", late) {
		t.Error("it leads out what NAT knows nothing of")
	}
	if got, want := w.round(), "nat 2; flows of 1, true"; got != want || !w.k.Leads("mail", late) {
		t.Errorf("a subnet comes: %s; want %s", got, want)
	}
	w.fails = errors.New("no iptables")
	later := netip.MustParsePrefix("10.128.12.0/22")
	if w.put(cluster.Subnet{Prefix: later, Network: "blue"}); w.round() != "" || w.k.Leads("mail", later) || !w.k.Leads("mail", late) {
		t.Error("it leads out what NAT does not have")
	}
}

// TestSet: an egress with another address has the new one before the old one goes; while another machine has the new
// one, nothing leaves.
func TestSet(t *testing.T) {
	w := newWorld(t, "host1")
	w.round()
	e, _ := cluster.Get[cluster.Egress](w.r.Snapshot(), "mail")
	e.Addrs = []netip.Addr{netip.MustParseAddr("192.0.2.26")}
	w.put(e)
	if got, want := w.round(), "probe; add; nat 1; flows of 1, true; remove"; got != want || w.leaves != "192.0.2.26" || w.at != e.Addrs[0] || len(w.left) > 0 {
		t.Errorf("with another address: %s; want %s; it leaves by %s", got, want, w.leaves)
	}
	e.Addrs = []netip.Addr{netip.MustParseAddr("192.0.2.27")}
	w.put(e)
	w.answers(strange)
	if got, want := w.round(), "probe; flows of , false; nat 0; remove"; got != want || w.k.Leads("mail", subnet) || w.place.Here || !w.k.Notes()["mail"].Any() || w.holder() != "" {
		t.Errorf("with one that another machine has: %s; want %s", got, want)
	}
	w.answers(nil)
	w.now = w.now.Add(retry)
	if got, want := w.round(), "probe; add; nat 1; flows of 1, true"; got != want || w.leaves != "192.0.2.27" || w.holder() != self {
		t.Errorf("when that one is gone: %s; want %s; it leaves by %s", got, want, w.leaves)
	}
}

// TestUnasked: NAT gives no address that an egress has by now and that this host has not asked for yet: what another
// egress' taking tells it in between, and while this host is to wait.
func TestUnasked(t *testing.T) {
	w := newWorld(t, "host1")
	w.round()
	e, _ := cluster.Get[cluster.Egress](w.r.Snapshot(), "mail")
	e.Addrs = []netip.Addr{mail.Next()}
	w.put(e)
	if err := w.k.tellNAT(w.r.Snapshot()); err != nil || w.leaves != mail.String() {
		t.Errorf("it leaves by %q, %v, before anybody was asked", w.leaves, err)
	}
	w.k.started = w.now // it does not know yet what the others do
	if got, want := w.round(), "flows of 1, false; nat 0; remove"; got != want || w.k.Leads("mail", subnet) {
		t.Errorf("while it waits: %s; want %s; it leaves by %q", got, want, w.leaves)
	}
	w.now = w.now.Add(patience + 1)
	if got, want := w.round(), "probe; add; nat 1; flows of 1, true"; got != want || w.leaves != mail.Next().String() || !w.k.Leads("mail", subnet) {
		t.Errorf("then: %s; want %s; it leaves by %q", got, want, w.leaves)
	}
	// An administrator has the next one here already.
	e.Addrs = []netip.Addr{mail.Next().Next()}
	w.left, w.at = append(w.left, w.at), e.Addrs[0]
	w.put(e)
	if w.round(); w.leaves != e.Addrs[0].String() || !w.k.Leads("mail", subnet) {
		t.Errorf("with an address that is here: it leaves by %q", w.leaves)
	}
}

// TestByLabel: NAT has the containers that an egress asks for, one by one, and those of another host, too; a container that
// takes an address over from one with other labels has it anew.
func TestByLabel(t *testing.T) {
	w := newWorld(t, "host1")
	w.round()
	smtp := mail.Next()
	a := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 128, 4, n}) }
	w.put(cluster.Node{ID: self, Name: "host1", LabelEgress: true},
		cluster.LabelEgress{Name: "smtp", Networks: []string{"blue"}, Addrs: []netip.Addr{smtp}, Labels: []string{"role=smtp"}, Gateways: []string{"host1"}},
		cluster.Endpoint{ID: "e1", Network: "blue", Host: self, Addrs: []netip.Addr{a(7)}, Labelled: true, Labels: map[string]string{"role": "smtp"}},
		cluster.Endpoint{ID: "e2", Network: "blue", Host: self, Addrs: []netip.Addr{a(8)}, Labelled: true},
		cluster.Endpoint{ID: "e3", Network: "blue", Host: self, Addrs: []netip.Addr{a(9)}})
	replicatest.Hear(t, w.r, other, cluster.Endpoint{ID: "e4", Network: "blue", Host: other, Addrs: []netip.Addr{a(70)}, Labelled: true, Labels: map[string]string{"role": "smtp"}})
	single := func(n byte) netip.Prefix { return netip.PrefixFrom(a(n), 32) }
	w.round()
	if !w.k.Leads("smtp", single(7)) || !w.k.Leads("smtp", single(70)) || w.k.Leads("smtp", single(8)) || w.k.Leads("smtp", single(9)) || w.k.Leads("smtp", subnet) || w.k.Leads("mail", single(7)) || !w.k.Leads("mail", subnet) {
		t.Errorf("NAT has %v", w.k.leads)
	}
	w.put(cluster.Endpoint{ID: "e1", Network: "blue", Host: self, Addrs: []netip.Addr{a(7)}, Labelled: true, Labels: map[string]string{"role": "web"}})
	if w.k.Leads("mail", single(7)) || !w.k.Leads("mail", single(8)) {
		t.Errorf("the network's address is that of one which NAT gives another one, or not that of the rest: %v", w.k.leads)
	}
	// The switch hears once more when NAT has let go of it.
	if got, want := w.round(), "flows of 1, true; nat 2; flows of 1, true"; got != want || w.k.Leads("smtp", single(7)) || !w.k.Leads("mail", single(7)) || len(w.k.sources) != 2 {
		t.Errorf("without the label: %s, want %s; NAT has %v", got, want, w.k.leads)
	}
	if _, err := w.r.Update(func(tx *replica.Tx) error {
		tx.Delete(cluster.LabelEgress{Name: "smtp"}.Key())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if w.round(); w.k.Leads("smtp", single(70)) || !w.k.Leads("mail", subnet) || len(w.k.sources) != 1 {
		t.Errorf("without the egress NAT has %v", w.k.leads)
	}
}

// TestNone: without any egress the LAN is not looked at, once nothing is left of one.
func TestNone(t *testing.T) {
	w := newWorld(t, "host1")
	w.round()
	if _, err := w.r.Update(func(tx *replica.Tx) error { tx.Delete(cluster.Egress{Name: "mail"}.Key()); return nil }); err != nil {
		t.Fatal(err)
	}
	if w.round(); w.place.Here {
		t.Fatal("it has the address yet")
	}
	w.looks = 0
	for range 3 {
		w.put(cluster.Subnet{Prefix: netip.MustParsePrefix("10.128.8.0/22"), Network: "blue", Gateway: netip.AddrFrom4([4]byte{10, 128, 8, byte(w.now.Second()%250 + 1)})})
		w.round()
	}
	if w.looks > 1 { // what was removed may have come back
		t.Errorf("%d looks at the LAN without any egress", w.looks)
	}
}

// TestRouted: an address that is on no LAN is taken where routers are told of it, and is let go when none is any more.
func TestRouted(t *testing.T) {
	w := newWorld(t, "host1")
	var routed Routed
	w.k.cfg.Routed = func() Routed { return routed }
	w.place = lan.Place{Off: true}
	if w.round(); w.holder() != "" || !w.k.Notes()["mail"].Unfit {
		t.Errorf("no router is told: %q holds it, %+v", w.holder(), w.k.Notes()["mail"])
	}
	routed = Routed{Take: true, Keep: true}
	w.answers(net.HardwareAddr{}) // the routers lead to a host that is silent
	replicatest.Hear(t, w.r, other, cluster.Node{ID: other, Name: "host2"})
	w.put(cluster.EgressHolder{Egress: "mail", Host: other})
	w.dead[other] = true
	w.now = w.now.Add(time.Minute)
	if got := w.round(); got != "probe" || !w.k.Notes()["mail"].Silent || w.holder() != other {
		t.Errorf("taken from a host that carries packets: %s, %+v", got, w.k.Notes()["mail"])
	}
	w.answers(nil) // they have forgotten it
	w.now = w.now.Add(retry)
	if got, want := w.round(), "probe; add; nat 1; flows of 1, true"; got != want || w.holder() != self {
		t.Errorf("taking it: %s; want %s", got, want)
	}
	if h, _ := cluster.Get[cluster.EgressHolder](w.r.Snapshot(), "mail"); h.MAC != "" {
		t.Errorf("it is known by a MAC, %s", h.MAC)
	}
	w.place = lan.Place{NIC: lan.Loopback, MAC: make(net.HardwareAddr, 6), Here: true, Ours: true}
	w.at = mail
	for range 10 { // nor does it ask whether another one has it: it would answer itself
		w.now = w.now.Add(reannounce)
		if got := w.round(); got != "" {
			t.Errorf("holding it: %s", got)
		}
	}
	routed = Routed{Keep: true} // the router begins anew
	if got := w.round(); got != "" || w.holder() != self {
		t.Errorf("without a session for a moment: %s", got)
	}
	routed = Routed{}
	if got, want := w.round(), "remove; flows of , false; nat 0"; got != want || w.holder() != "" {
		t.Errorf("without a router: %s; want %s; %q holds it", got, want, w.holder())
	}
}
