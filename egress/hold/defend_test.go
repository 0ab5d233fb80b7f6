package hold

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica/replicatest"
)

// TestDefends: who says once that it has what this host holds does not have the LAN's packets for longer than two seconds. Who goes on
// saying so is answered ever less often, and after a while of silence as at first. A host that stood still answers when it has heard others.
func TestDefends(t *testing.T) {
	w := newWorld(t, "host1", "host2")
	replicatest.Hear(t, w.r, other, cluster.Node{ID: other, Name: "host2"})
	if w.step(2 * time.Minute); w.claim == nil {
		t.Fatal("it does not listen")
	}
	words := func() (n int) {
		for _, what := range w.done() {
			if what == "announce" {
				n++
			}
		}
		return n
	}
	calm := func() { // until it has just spoken by itself
		w.forget()
		for n := 0; words() == 0; n++ {
			if w.step(tick); n > int(reannounce/tick) {
				t.Fatal("it does not speak")
			}
		}
		w.forget()
	}
	for _, what := range []string{"once", "after a while"} {
		calm()
		w.claim(itsMAC)
		if w.step(2 * time.Second); words() != 1 || !slices.Contains(w.done(), "probe") {
			t.Errorf("another one has said %s that it has the address: %v", what, w.done())
		}
		w.step(outdone)
	}
	calm()
	for range 5 * time.Minute / tick { // all the time
		w.claim(itsMAC)
		w.step(tick)
	}
	if n := words(); n < 10 || n > 25 {
		t.Errorf("another one says for 5 minutes that it has the address: this one says so %d times", n)
	}
	w.step(2 * outdone)
	calm()
	w.unheard = map[cluster.NodeID]bool{other: true}
	w.claim(itsMAC)
	if w.step(defence + 5*tick); words() > 0 {
		t.Errorf("it has heard nobody since it stood still: %v", w.done())
	}
	w.unheard = nil
	if w.step(2 * tick); words() != 1 {
		t.Errorf("it has heard others: %v", w.done())
	}
	w.step(2 * outdone)
	w.claim(itsMAC) // the other one has taken it
	w.put(cluster.EgressHolder{Egress: "mail", Host: other, MAC: itsMAC.String()})
	w.forget()
	if w.step(5 * time.Second); words() > 0 || w.claim != nil {
		t.Errorf("another one holds it: %v", w.done())
	}
}

// TestWar: two that both hold it, on one LAN, and hear nothing of each other by gossip, make no war of it.
func TestWar(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 5))
	v := newVillage(t, 2, false, false)
	run := func(d time.Duration) {
		for n := range d / tick {
			v.tick(int(n), r)
		}
	}
	run(time.Minute)
	v.hosts[1].side = true
	run(time.Minute)
	if len(v.holders()) != 2 {
		t.Fatal("a partition, and one side is without it")
	}
	v.hosts[0].wire, v.hosts[1].wire = false, false
	v.hosts[1].side = false // the LAN is one again
	for _, h := range v.hosts {
		h.words = 0
	}
	run(10 * time.Minute)
	for i, h := range v.hosts {
		if !h.has || h.claim == nil || h.words > 40 {
			t.Errorf("host%d has it: %v, hears: %v, and has said so %d times in 10 minutes", i+1, h.has, h.claim != nil, h.words)
		}
	}
	v.hosts[0].wire, v.hosts[1].wire = true, true
	run(10 * time.Second)
	if len(v.holders()) != 1 {
		t.Errorf("they hear each other, and %d have it", len(v.holders()))
	}
}
