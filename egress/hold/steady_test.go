package hold

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/lan"
	"github.com/grapevine-net/grapevine/replica/replicatest"
)

// TestSteady: a link that was lost once counts again at once; the more often it was lost lately, the longer it has to be there
// before it does. After a minute without a loss all is forgotten.
func TestSteady(t *testing.T) {
	f, now := flaps{}, time.Now()
	see := func(linked bool, after time.Duration) { now = now.Add(after); f.see("eth0", linked, now) }
	wait := func(want time.Duration) {
		t.Helper()
		if got := f.wait("eth0", now); got != want {
			t.Errorf("it waits %v, want %v", got, want)
		}
	}
	wait(0)
	see(false, 0) // it never had one: that is no loss
	see(true, time.Second)
	wait(0)
	const blink = 300 * time.Millisecond
	for i, want := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second} {
		see(false, blink)
		see(true, blink)
		if got := f.wait("eth0", now); got != want {
			t.Errorf("lost %d times, it waits %v, want %v", i+1, got, want)
		}
	}
	see(true, 10*time.Second)
	wait(20 * time.Second)
	see(true, 20*time.Second)
	wait(0)
	see(false, time.Second)
	see(true, blink)
	wait(30 * time.Second)
	now = now.Add(remember + time.Second)
	wait(0)
	see(false, 0)
	see(true, blink)
	wait(0)
	if f.wait("eth1", now) != 0 {
		t.Error("another one waits")
	}
}

// TestFlap: a holder whose link comes and goes leaves the address to another gateway as if it had none, and tells the cluster
// of it now and then, not at each turn. If there is no other gateway, it goes on with what link there is.
func TestFlap(t *testing.T) {
	for _, alone := range []bool{false, true} {
		w := newWorld(t, "host1", "host2")
		replicatest.Hear(t, w.r, other, cluster.Node{ID: other, Name: "host2"})
		w.dead[other] = alone
		writes := 0
		var had []cluster.UnfitCase
		step := func(d time.Duration) {
			for range d / tick {
				w.step(tick)
				said, _ := cluster.Get[cluster.Unfit](w.r.Snapshot(), string(self))
				if !slices.Equal(said.Egresses, had) {
					writes++
					had = said.Egresses
				}
			}
		}
		if step(3 * turn); w.holder() != self {
			t.Fatalf("it does not take it: %+v", w.k.Notes())
		}
		var left time.Duration
		for n := range 33 { // 20 s
			w.place.Cut = true
			step(3 * tick)
			w.place.Cut = false
			step(3 * tick)
			if left == 0 && w.holder() == "" {
				left = time.Duration(n+1) * 6 * tick
				w.put(cluster.EgressHolder{Egress: "mail", Host: other, MAC: itsMAC.String()})
			}
			if alone && (w.holder() != self || !w.place.Here || !w.k.Serves("mail")) {
				t.Fatalf("alone: after %d turns: held by %q, %+v", n, w.holder(), w.place)
			}
		}
		if !alone && (left == 0 || left > 2*time.Second || w.holder() != other || w.place.Here) {
			t.Errorf("left after %v, held by %q, %+v", left, w.holder(), w.place)
		}
		if writes > 5 {
			t.Errorf("alone: %v: in 20 s it told the cluster %d times what it cannot hold", alone, writes)
		}
		if step(longest + 2*turn); len(had) > 0 || w.k.Notes()["mail"].Any() {
			t.Errorf("alone: %v: the link is there for long, and others hear that it is not: %v, %+v", alone, had, w.k.Notes()["mail"])
		}
	}
}

// TestTold: what comes and goes otherwise, as the LAN's subnet may, is told every few seconds.
func TestTold(t *testing.T) {
	w := newWorld(t, "host1", "host2")
	replicatest.Hear(t, w.r, other, cluster.Node{ID: other, Name: "host2"})
	w.put(cluster.EgressHolder{Egress: "mail", Host: other})
	writes, last := 0, false
	look := func() {
		w.k.step(t.Context(), w.r.Snapshot(), w.now)
		if _, said := cluster.Get[cluster.Unfit](w.r.Snapshot(), string(self)); said != last {
			writes++
			last = said
		}
	}
	for n := range 20 {
		w.place = lan.Place{}
		if n%2 == 0 {
			w.place = lan.Place{NIC: "eth0", MAC: ownMAC}
		}
		w.now = w.now.Add(time.Second)
		look()
	}
	if w.now = w.now.Add(untold); writes == 0 || writes > 11 {
		t.Errorf("told %d times in 20 s", writes)
	}
	if look(); !last {
		t.Error("it has no interface, and others do not hear of it")
	}
}

// TestAway: a holder that had no link for long and could tell nobody has let go of the address on its interface, but not of the
// record. Before it has the address again it asks: it leaves it to who answers, without a word to the LAN, and writes no record
// before it can have read the other's. An administrator's address stays, and is asked about all the same.
func TestAway(t *testing.T) {
	for _, tt := range []struct {
		what   string
		theirs bool             // an administrator has given it
		short  bool             // the link was away for less than linkless
		who    net.HardwareAddr // that answers when it is back
		silent bool             // the others are not heard
		frozen bool             // the agent, while the link was away
	}{
		{what: "nobody has it"},
		{what: "nobody has it, and nobody is heard", silent: true},
		{what: "another has it", who: itsMAC},
		{what: "another has it, and is not heard", who: itsMAC, silent: true},
		{what: "another has an administrator's", who: itsMAC, silent: true, theirs: true},
		{what: "for a moment", short: true},
		{what: "the agent stood still", frozen: true, who: itsMAC, silent: true},
	} {
		w := newWorld(t, "host1", "host2")
		replicatest.Hear(t, w.r, other, cluster.Node{ID: other, Name: "host2"})
		w.place.Here = tt.theirs
		w.put(cluster.Node{ID: self, Name: "host1", VTEP: mail.Prev()}) // in this world all addresses are on one interface
		if w.step(10 * time.Second); w.holder() != self || !w.place.Here {
			t.Fatalf("%s: it does not take it: %+v", tt.what, w.k.Notes())
		}
		w.place.Cut = true
		if w.step(linkless - tick); !w.place.Here {
			t.Errorf("%s: it lets go at once", tt.what)
		}
		w.dead[other] = true
		switch {
		case tt.frozen:
			w.now = w.now.Add(5 * time.Second)
		case !tt.short:
			w.step(5 * time.Second)
			if w.place.Here != tt.theirs || w.holder() != self || !w.k.Serves("mail") || w.k.Notes()["mail"].Cut != "eth0" {
				t.Errorf("%s: without a link: %+v, held by %q, %+v", tt.what, w.place, w.holder(), w.k.Notes()["mail"])
			}
		}
		w.place.Cut = false
		w.answers(tt.who)
		w.forget()
		if w.step(3 * tick); !tt.silent {
			w.dead[other] = false
		}
		if w.step(patience - 5*tick); tt.who == nil {
			i, j := slices.Index(w.done(), "probe"), slices.Index(w.done(), "announce")
			if !w.place.Here || !w.k.Serves("mail") || w.holder() != self || w.k.Notes()["mail"].Any() || j < 0 || tt.short != (i < 0) || i > j {
				t.Errorf("%s: it does not have it again: %v, %+v, %+v", tt.what, w.done(), w.place, w.k.Notes()["mail"])
			}
			continue
		}
		if slices.Contains(w.done(), "announce") || slices.Contains(w.done(), "add") || w.place.Here != tt.theirs || w.k.Serves("mail") || w.holder() != self || w.k.Notes()["mail"].Occupied == nil {
			t.Errorf("%s: it does not leave it: %v, %+v, held by %q, %+v", tt.what, w.done(), w.place, w.holder(), w.k.Notes()["mail"])
		}
		if w.step(2 * patience); tt.silent != (w.holder() == self) {
			t.Errorf("%s: by the record %q holds it", tt.what, w.holder())
		}
		w.put(cluster.EgressHolder{Egress: "mail", Host: other, MAC: itsMAC.String()})
		w.dead[other] = false
		if w.step(patience); w.place.Here != tt.theirs || w.k.Serves("mail") || w.holder() != other || slices.Contains(w.done(), "announce") {
			t.Errorf("%s: they meet: %v, held by %q", tt.what, w.done(), w.holder())
		}
	}
}

// TestAwayQuorum: with a quorum, whose hosts are all heard, the holder has the address again as soon as its link is back.
func TestAwayQuorum(t *testing.T) {
	w := newWorld(t, "host1", "host2")
	unfit := cluster.Unfit{Host: other, Egresses: []cluster.UnfitCase{{Egress: "mail", NIC: "eth0"}}}
	replicatest.Hear(t, w.r, other, cluster.Node{ID: other, Name: "host2"}, unfit)
	e, _ := cluster.Get[cluster.Egress](w.r.Snapshot(), "mail")
	e.Quorum = true
	w.put(e)
	w.step(10 * time.Second)
	w.place.Cut = true
	if w.step(5 * time.Second); w.place.Here || w.holder() != self || !w.k.Serves("mail") {
		t.Errorf("without a link: %+v, held by %q", w.place, w.holder())
	}
	w.place.Cut = false
	if w.step(turn); !w.place.Here || w.holder() != self || !w.k.Serves("mail") {
		t.Errorf("it is back: %+v, held by %q, %+v", w.place, w.holder(), w.k.Notes()["mail"])
	}
}

// TestLate: a switch may forward nothing for half a minute after a link is back, and who has the address meanwhile answers no
// earlier. So a holder that was away, and has heard nobody since, asks before each word to the LAN, and leaves the address to who answers.
func TestLate(t *testing.T) {
	w := newWorld(t, "host1", "host2")
	replicatest.Hear(t, w.r, other, cluster.Node{ID: other, Name: "host2"})
	w.put(cluster.Node{ID: self, Name: "host1", VTEP: mail.Prev()})
	w.step(10 * time.Second)
	w.place.Cut, w.dead[other] = true, true
	w.step(5 * time.Second)
	w.place.Cut = false
	if w.step(20 * time.Second); !w.place.Here || !w.k.Serves("mail") {
		t.Fatalf("nobody answers, and it does not have it again: %+v", w.k.Notes()["mail"])
	}
	w.answers(itsMAC)
	w.forget()
	if w.step(2 * settled); w.place.Here || w.k.Serves("mail") || slices.Contains(w.done(), "announce") || w.holder() != self {
		t.Errorf("another one answers: %v, %+v, held by %q", w.done(), w.place, w.holder())
	}
	w.answers(nil)
	if w.step(2 * turn); !w.place.Here {
		t.Errorf("that one is gone: %+v", w.k.Notes()["mail"])
	}
	w.dead[other] = false // it is heard, and has told nothing of the address
	w.step(patience)
	w.forget()
	if w.step(2 * time.Minute); slices.Index(w.done(), "announce") > slices.Index(w.done(), "probe") {
		t.Errorf("it asks before each word for ever: %v", w.done())
	}
}
