package hold

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/lan"
	"github.com/grapevine-net/grapevine/host/nat"
	"github.com/grapevine-net/grapevine/replica/replicatest"
)

// calm is a LAN on which nobody says anything.
type calm struct{}

func (calm) Guard(string, netip.Addr, func(net.HardwareAddr)) (end func(), over <-chan struct{}, err error) {
	ch := make(chan struct{})
	return func() { close(ch) }, ch, nil
}

// wide is a host's interface on a LAN on which any number of addresses is held.
type wide struct {
	calm
	mu   sync.Mutex
	cut  bool
	ours map[netip.Addr]bool
}

func (w *wide) Look() (View, error)               { return w, nil }
func (w *wide) Announce(string, netip.Addr) error { return nil }
func (w *wide) Linked(string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.cut
}
func (w *wide) Probe(context.Context, string, netip.Addr) (net.HardwareAddr, error) {
	return nil, nil
}
func (w *wide) Find(a netip.Addr) lan.Place {
	w.mu.Lock()
	defer w.mu.Unlock()
	return lan.Place{NIC: "eth0", MAC: ownMAC, Cut: w.cut, Here: w.ours[a], Ours: w.ours[a]}
}
func (w *wide) Add(_ string, a netip.Addr) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ours[a] = true
	return nil
}
func (w *wide) Remove(a netip.Addr) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.ours, a)
	return nil
}
func (w *wide) Ours() (list []netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for a := range w.ours {
		list = append(list, a)
	}
	return list
}

// TestWrites: a link that comes and goes for a minute makes the cluster's state change no more often than each of its egresses
// changes hands once, and one record more now and then.
func TestWrites(t *testing.T) {
	const many = 15
	w := &wide{ours: map[netip.Addr]bool{}}
	bodies := []cluster.Body{cluster.Network{Name: "blue", VNID: 5}, cluster.Node{ID: self, Name: "host1"}}
	for i := range many {
		bodies = append(bodies, cluster.Egress{Name: fmt.Sprintf("e%02d", i), Networks: []string{"blue"}, Gateways: []string{"host1", "host2"}, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + i)})}})
	}
	r := replicatest.New(t, self, bodies...)
	replicatest.Hear(t, r, other, cluster.Node{ID: other, Name: "host2"})
	k := New(Config{Self: self, Replica: r, Alive: func(cluster.NodeID) bool { return true }, Hear: func(cluster.NodeID) (heard, known bool) { return true, true }, LAN: w, Log: slog.New(slog.DiscardHandler)})
	now := k.started.Add(patience + 1)
	k.Begin(func([]nat.Source) error { return nil }, func(context.Context) error { return nil })
	for range 40 {
		k.step(t.Context(), r.Snapshot(), now)
		now = now.Add(tick)
	}
	if len(w.Ours()) != many {
		t.Fatalf("it holds %d", len(w.Ours()))
	}
	before := r.Snapshot().Rev()
	taken := uint64(0)
	for n := range 600 { // a minute
		w.mu.Lock()
		w.cut = n%6 < 3
		w.mu.Unlock()
		k.step(t.Context(), r.Snapshot(), now)
		now = now.Add(tick)
		for i := range many { // what it lets go the other one takes
			if h, _ := cluster.Get[cluster.EgressHolder](r.Snapshot(), fmt.Sprintf("e%02d", i)); h.Host == "" {
				replicatest.Put(t, r, cluster.EgressHolder{Egress: h.Egress, Host: other})
				taken++
			}
		}
	}
	wrote := r.Snapshot().Rev() - before - taken
	t.Logf("%d records", wrote)
	if taken != many || wrote > many+5 {
		t.Errorf("%d changed hands, and it wrote %d records besides", taken, wrote)
	}
	if len(w.Ours()) != 0 {
		t.Errorf("it holds %v", w.Ours())
	}
}
