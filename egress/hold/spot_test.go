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

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/egress"
	"github.com/grapevine-net/grapevine/host/lan"
	"github.com/grapevine-net/grapevine/replica/replicatest"
)

var mail6 = netip.MustParseAddr("2001:db8::25")

// table is a LAN with some addresses, of which some are others'.
type table struct {
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
