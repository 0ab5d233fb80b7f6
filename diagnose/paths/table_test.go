package paths

import (
	"fmt"
	"testing"
	"time"
)

// cluster is Tables that say hello to each other, with a clock of its own.
type cluster struct {
	now    time.Time
	ids    []string
	tables map[string]*Table
	old    map[string]bool                        // knows nothing of hellos
	lost   func(from, to string, large bool) bool // what does not arrive
	sent   map[string]int                         // hellos, by host
}

func newCluster(n int, old ...string) *cluster {
	c := &cluster{now: time.Unix(1000, 0), tables: map[string]*Table{}, old: map[string]bool{}, sent: map[string]int{}, lost: func(string, string, bool) bool { return false }}
	for i := range n {
		id := fmt.Sprintf("h%04d", i)
		c.ids = append(c.ids, id)
		c.tables[id] = New(id)
	}
	for _, id := range old {
		c.old[id] = true
	}
	c.set()
	return c
}

func (c *cluster) set() {
	var hosts []Host
	for _, id := range c.ids {
		hosts = append(hosts, Host{ID: id, Sends: !c.old[id]})
	}
	for _, t := range c.tables {
		t.Set(hosts, c.now)
	}
}

// run passes time, half a second at a time.
func (c *cluster) run(d time.Duration) {
	for end := c.now.Add(d); c.now.Before(end); c.now = c.now.Add(500 * time.Millisecond) {
		for from, t := range c.tables {
			if c.old[from] {
				continue
			}
			for to, h := range t.Due(c.now) {
				c.sent[from]++
				for _, large := range []bool{false, true} {
					if h.Large = large; !c.old[to] && !c.lost(from, to, large) {
						c.tables[to].Hear(h, c.now)
					}
				}
			}
		}
	}
}

func (c *cluster) bad(host string) (list []Verdict) {
	for _, v := range c.tables[host].Verdicts(c.now) {
		if v.Bad() {
			list = append(list, v)
		}
	}
	return list
}

func (c *cluster) wantAllWell(t *testing.T) {
	t.Helper()
	for _, id := range c.ids {
		if bad := c.bad(id); len(bad) > 0 && !c.old[id] {
			t.Fatalf("%s says %+v", id, bad)
		}
	}
}

// TestOneWay: what is dropped one way is known on both hosts within ten seconds, and nobody
// else says anything.
func TestOneWay(t *testing.T) {
	for _, n := range []int{2, 3, 9} {
		c := newCluster(n)
		c.run(10 * time.Second)
		c.wantAllWell(t)
		c.lost = func(from, to string, _ bool) bool { return from == "h0000" && to == "h0001" }
		c.run(9500 * time.Millisecond)
		if bad := c.bad("h0001"); len(bad) != 1 || bad[0].Host != "h0000" || bad[0].In != Nothing || bad[0].Out != Unknown {
			t.Errorf("of %d: the one that hears nothing says %+v", n, bad)
		}
		if bad := c.bad("h0000"); len(bad) != 1 || bad[0].Host != "h0001" || bad[0].In != All || bad[0].Out != Nothing {
			t.Errorf("of %d: the one that is not heard says %+v", n, bad)
		}
		for _, id := range c.ids[2:] {
			if bad := c.bad(id); len(bad) > 0 {
				t.Errorf("of %d: %s says %+v", n, id, bad)
			}
		}
		c.lost = func(string, string, bool) bool { return false }
		c.run(3 * time.Second)
		c.wantAllWell(t)
	}
}

// TestFromTheStart: a firewall that was there first is found, too.
func TestFromTheStart(t *testing.T) {
	c := newCluster(3)
	c.lost = func(from, to string, _ bool) bool { return from == "h0000" || to == "h0000" }
	c.run(10 * time.Second)
	if bad := c.bad("h0000"); len(bad) != 2 {
		t.Errorf("the host itself says %+v", bad)
	}
	for _, id := range c.ids[1:] {
		if bad := c.bad(id); len(bad) != 1 || bad[0].In != Nothing {
			t.Errorf("%s says %+v", id, bad)
		}
	}
}

// TestLarge: a path that lets only small packets through.
func TestLarge(t *testing.T) {
	c := newCluster(3)
	c.run(10 * time.Second)
	c.lost = func(from, to string, large bool) bool { return large && to == "h0002" }
	c.run(11 * time.Second)
	if bad := c.bad("h0002"); len(bad) != 2 || bad[0].In != Small {
		t.Errorf("the one behind it says %+v", bad)
	}
	if bad := c.bad("h0000"); len(bad) != 1 || bad[0].Out != Small || bad[0].In != All {
		t.Errorf("another one says %+v", bad)
	}
}

// TestOldHosts: who knows nothing of hellos is not judged, and hears none.
func TestOldHosts(t *testing.T) {
	c := newCluster(5, "h0000", "h0003")
	c.run(time.Minute)
	c.wantAllWell(t)
	if v := c.tables["h0001"].Verdicts(c.now); len(v) != 2 {
		t.Errorf("it judges %+v", v)
	}
	// It is upgraded.
	delete(c.old, "h0003")
	c.tables["h0003"] = New("h0003")
	c.set()
	c.run(time.Minute)
	c.wantAllWell(t)
	if v := c.tables["h0001"].Verdicts(c.now); len(v) != 3 {
		t.Errorf("it judges %+v", v)
	}
}

// TestRestart: an agent that begins anew finds nothing wrong, and the others neither.
func TestRestart(t *testing.T) {
	c := newCluster(3)
	c.run(10 * time.Second)
	c.tables["h0001"] = New("h0001")
	c.now = c.now.Add(2 * time.Second)
	c.set()
	for range 20 {
		c.run(500 * time.Millisecond)
		c.wantAllWell(t)
	}
}

// TestLoss: a fifth of all frames is lost, for an hour.
func TestLoss(t *testing.T) {
	c := newCluster(5)
	seed := uint32(1)
	c.lost = func(string, string, bool) bool {
		seed = seed*1664525 + 1013904223
		return seed>>16%5 == 0
	}
	wrong := 0
	for range 3600 {
		c.run(time.Second)
		for _, id := range c.ids {
			wrong += len(c.bad(id))
		}
	}
	// 72,000 verdicts; eight large frames in a row are lost once in 400,000.
	if wrong > 10 {
		t.Errorf("%d verdicts are wrong", wrong)
	}
}

// TestMany: in a cluster of 1,000 a host sends little, and a firewall on one is found by its
// neighbours as soon as in a small one, by all others within three minutes.
func TestMany(t *testing.T) {
	c := newCluster(1000)
	const watched = 40 // of them all, since Tables of 1,000 hosts take their time
	tables := map[string]*Table{}
	for _, id := range c.ids[:watched] {
		tables[id] = c.tables[id]
	}
	c.tables = tables
	for _, id := range c.ids[watched:] {
		c.old[id] = true // they are not simulated
	}
	var hosts []Host
	for i, id := range c.ids {
		hosts = append(hosts, Host{ID: id, Sends: i < watched})
	}
	for _, t := range c.tables {
		t.Set(hosts, c.now)
	}
	c.run(2 * time.Minute)
	for id := range c.tables {
		if bad := c.bad(id); len(bad) > 0 {
			t.Fatalf("%s says %+v", id, bad)
		}
	}
	// Of 999: 8 each second, the others within 50 s.
	if far := c.tables["h0000"].far; far > time.Minute {
		t.Errorf("a host hears of one that is no neighbour every %v", far)
	}
	c.lost = func(from, to string, _ bool) bool { return from == "h0020" || to == "h0020" }
	c.run(9500 * time.Millisecond)
	if bad := c.bad("h0020"); len(bad) < 2*neighbours {
		t.Errorf("the host itself says %+v", bad)
	}
	if bad := c.bad("h0022"); len(bad) != 1 {
		t.Errorf("its neighbour says %+v", bad)
	}
	c.run(3 * time.Minute)
	for id := range c.tables {
		if id != "h0020" && len(c.bad(id)) != 1 {
			t.Errorf("%s says %+v", id, c.bad(id))
		}
	}
}

// TestFirstHello: who has just come is said nothing until it is heard, since this host may be a stranger there, or for five seconds.
func TestFirstHello(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	said := func(heard bool) (after time.Duration) {
		table := New("a")
		table.Set([]Host{{ID: "a", Sends: true}, {ID: "b", Sends: true}}, now)
		for ; ; after += 100 * time.Millisecond {
			if heard && after == 2*time.Second {
				table.Hear(Hello{From: "b", Every: nearEvery}, now.Add(after))
			}
			if len(table.Due(now.Add(after))) > 0 {
				return after
			}
		}
	}
	if got := said(false); got != shy {
		t.Errorf("one that is not heard is said hello after %s", got)
	}
	if got := said(true); got != 2*time.Second {
		t.Errorf("one that is heard after two seconds is said hello after %s", got)
	}
}

// TestInside: what goes through what encrypts may take a while until it is there for the first time; then it is missed as soon as the other.
func TestInside(t *testing.T) {
	const self, other = "0000000000000001", "0000000000000002"
	now := time.Unix(1000, 0)
	in := func(table *Table, after time.Duration) Heard { return table.Verdicts(now.Add(after))[0].In }
	outside, inside := New(self), NewInside(self)
	for _, table := range []*Table{outside, inside} {
		table.Set([]Host{{ID: other, Sends: true}}, now)
	}
	if in(outside, 9*time.Second) != Nothing || in(inside, 9*time.Second) != Unknown || in(inside, 16*time.Second) != Nothing {
		t.Error("it is not missed when it is to be")
	}
	for i := range 12 {
		inside.Hear(Hello{From: other, Every: time.Second, Hears: All, Large: true, Inside: true}, now.Add(time.Duration(i)*time.Second))
	}
	if in(inside, 12*time.Second) != All || in(inside, 18*time.Second) != Nothing {
		t.Error("it is not missed soon")
	}
	early := NewInside(self)
	early.Set([]Host{{ID: other, Sends: true}}, now)
	early.Hear(Hello{From: other, Every: time.Second, Hears: All, Large: true, Inside: true}, now.Add(time.Second))
	if in(early, 2*time.Second) != All || in(early, 7*time.Second) != Nothing {
		t.Error("one that was heard at once is not missed soon")
	}
	busy := NewInside(self)
	busy.Set([]Host{{ID: other, Sends: true}}, now)
	busy.Forgive(now.Add(2 * time.Second)) // this host was late itself
	if in(busy, 15*time.Second) != Unknown || in(busy, 18*time.Second) != Nothing {
		t.Error("who was never heard is missed sooner, since this host was late")
	}
}
