package hold

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/egress"
	"github.com/grapevine-net/grapevine/host/lan"
	"github.com/grapevine-net/grapevine/replica/replicatest"
)

var mail6 = netip.MustParseAddr("2001:db8::25")

// table is a LAN with some addresses, of which some are others'.
type table struct {
	calm
	mu     sync.Mutex
	here   map[netip.Addr]bool
	theirs map[netip.Addr]net.HardwareAddr
	refuse netip.Addr // what cannot be added
	unfit  netip.Addr // for what there is no interface
	told   []string
}

func (l *table) Look() (View, error) { return l, nil }
func (l *table) Linked(string) bool  { return true }

func (l *table) Find(a netip.Addr) lan.Place {
	if a == l.unfit {
		return lan.Place{}
	}
	return lan.Place{NIC: "eth0", MAC: ownMAC, Here: l.here[a], Ours: l.here[a]}
}

func (l *table) Ours() (list []netip.Addr) {
	for a := range l.here {
		list = append(list, a)
	}
	return list
}

func (l *table) Add(_ string, a netip.Addr) error {
	if a == l.refuse {
		return errors.New("refused")
	}
	l.here[a] = true
	return nil
}

func (l *table) Remove(a netip.Addr) error { delete(l.here, a); return nil }

func (l *table) Announce(_ string, a netip.Addr) error {
	l.told = append(l.told, a.String())
	return nil
}

func (l *table) Probe(_ context.Context, _ string, a netip.Addr) (net.HardwareAddr, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.theirs[a], nil
}

// routers is a host whose addresses outside lo are on one interface, and that has an address of ours at lo, or is on no LAN of it.
type routers struct {
	calm
	table
	held bool
	cut  bool
}

func (r *routers) Look() (View, error) { return r, nil }
func (r *routers) Linked(string) bool  { return !r.cut }
func (r *routers) Add(string, netip.Addr) error {
	r.held = true
	return nil
}

func (r *routers) Remove(netip.Addr) error {
	r.held = false
	return nil
}

func (r *routers) Find(a netip.Addr) lan.Place {
	switch {
	case a != mail:
		return lan.Place{NIC: "eth1", Here: true, Cut: r.cut}
	case r.held:
		return lan.Place{NIC: lan.Loopback, Here: true, Ours: true}
	}
	return lan.Place{Off: true}
}

// TestRoutedCut: a session with a router lasts longer than the link that it goes by. A holder without the link leaves an address that
// routers lead to to another gateway, if there is one, as it does one on a LAN.
func TestRoutedCut(t *testing.T) {
	for _, alone := range []bool{false, true} {
		w := newWorld(t, "host1", "host2")
		replicatest.Hear(t, w.r, other, cluster.Node{ID: other, Name: "host2"})
		r := &routers{}
		w.k.cfg.LAN = r
		w.k.cfg.Routed = func() Routed {
			return Routed{Take: true, Keep: true, From: []netip.Addr{netip.MustParseAddr("198.18.0.1")}}
		}
		w.dead[other] = alone
		step := func(d time.Duration) {
			for range d / tick {
				w.k.step(t.Context(), w.r.Snapshot(), w.now)
				w.now = w.now.Add(tick)
			}
		}
		if step(3 * turn); !r.held || w.holder() != self {
			t.Fatalf("it does not take it: %+v", w.k.Notes())
		}
		r.cut = true
		if step(linkless); !r.held || w.k.Notes()["mail"].Cut != "eth1" {
			t.Errorf("alone: %v: a moment later: %+v", alone, w.k.Notes()["mail"])
		}
		if step(2 * tick); r.held != alone || (w.holder() == self) != alone || w.k.Serves("mail") != alone {
			t.Errorf("alone: %v: then it has it: %v, by the record %q", alone, r.held, w.holder())
		}
		r.cut = false
		if step(3 * turn); !r.held || w.holder() != self || w.k.Notes()["mail"].Any() {
			t.Errorf("alone: %v: the link is back: %+v", alone, w.k.Notes()["mail"])
		}
	}
}

// TestBoth: an egress with an address of each family is held with both or with none, and whoever has one of them is
// asked about.
func TestBoth(t *testing.T) {
	w := newWorld(t, "host1")
	l := &table{here: map[netip.Addr]bool{}, theirs: map[netip.Addr]net.HardwareAddr{}}
	w.k.cfg.LAN = l
	subnet6 := netip.MustParsePrefix("fd00:1::/64")
	replicatest.Hear(t, w.r, other, cluster.Node{ID: other, Name: "host2"})
	w.put(cluster.Egress{Name: "mail", Networks: []string{"blue"}, Addrs: []netip.Addr{mail, mail6}, Gateways: []string{"host1"}},
		cluster.Subnet{Prefix: subnet6, Network: "blue"}, cluster.EgressHolder{Egress: "mail", Host: other, MAC: itsMAC.String()})
	w.dead[other] = true
	round := func(want string) {
		t.Helper()
		w.now = w.now.Add(retry)
		w.round()
		var note string
		switch n := w.k.Notes()["mail"]; {
		case n.Silent:
			note = "silent"
		case n.Occupied != nil:
			note = "occupied by " + n.Occupied.String()
		case n.Unfit:
			note = "unfit"
		case n.Err != nil:
			note = n.Err.Error()
		}
		if got := fmt.Sprintf("%d here, leads %v %v; %s", len(l.here), w.k.Leads("mail", subnet), w.k.Leads("mail", subnet6), note); got != want {
			t.Errorf("%s; want %s", got, want)
		}
	}
	l.theirs[mail6] = strange
	round("0 here, leads false false; occupied by " + strange.String())
	l.theirs[mail] = itsMAC
	round("0 here, leads false false; silent")
	l.theirs = nil
	l.refuse = mail6
	round("0 here, leads false false; refused")
	l.refuse = netip.Addr{}
	round("2 here, leads true true; ")
	if slices.Sort(l.told); !slices.Equal(slices.Compact(l.told), []string{"192.0.2.25", "2001:db8::25"}) || w.holder() != self {
		t.Errorf("the LAN is told of %v, and %s holds it", l.told, w.holder())
	}
	// One goes: it comes back.
	delete(l.here, mail6)
	round("2 here, leads true true; ")
	l.unfit = mail6
	delete(l.here, mail6)
	round("0 here, leads false false; unfit")
	if w.holder() != "" {
		t.Errorf("%s holds one of the two", w.holder())
	}
	l.unfit, l.theirs = netip.Addr{}, nil
	round("2 here, leads true true; ")
	delete(l.here, mail6)
	l.theirs = map[netip.Addr]net.HardwareAddr{mail6: strange}
	round("0 here, leads false false; occupied by " + strange.String())
	if w.holder() != "" {
		t.Errorf("%s holds what another machine has", w.holder())
	}
	l.theirs = nil
	round("2 here, leads true true; ")
	delete(l.here, mail6)
	l.refuse = mail6
	round("0 here, leads false false; refused")
	if w.holder() != "" {
		t.Errorf("%s holds what it cannot add", w.holder())
	}
}

// TestOccupied: that of several machines one is the silent holder is what counts.
func TestOccupied(t *testing.T) {
	r := replicatest.New(t, self, cluster.EgressHolder{Egress: "mail", Host: other, MAC: itsMAC.String()})
	c := egress.Case{Egress: cluster.Egress{Name: "mail"}, Holder: other}
	if n := occupied([]net.HardwareAddr{strange, itsMAC}, r.Snapshot(), c); n.Silent {
		t.Error("a host that was forgotten is silent")
	}
	replicatest.Hear(t, r, other, cluster.Node{ID: other, Name: "host2"})
	if n := occupied([]net.HardwareAddr{strange, itsMAC}, r.Snapshot(), c); !n.Silent || n.Occupied.String() != itsMAC.String() {
		t.Errorf("%+v", n)
	}
}
