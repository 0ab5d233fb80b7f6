package gossip

import (
	"fmt"
	"time"
)

// versions is a range of protocol versions, both ends included.
type versions struct{ min, max uint8 }

func (v versions) meet(o versions) bool { return v.min <= o.max && o.min <= v.max }

func (v versions) String() string { return fmt.Sprintf("%d to %d", v.min, v.max) }

// census counts the members that answer by the newest version that they speak.
type census map[uint8]int

func (c census) add(p *peer, n int) {
	if c[p.newest] += n; c[p.newest] == 0 {
		delete(c, p.newest)
	}
}

// writes is the version that this host writes to members: the newest that it and all of them that
// answer speak. Who sends asks for it when he has chosen to whom: an older host may come at any
// moment. What was on its way to a host that was replaced by an older one may have another;
// anti-entropy mends that.
//
// Who was not met yet may be of any version. He gets nothing but push/pulls (LocalState) and requests
// for a proof (prove), in the oldest form, and answers in the form of his question.
func (g *Gossip) writes() uint8 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.written()
}

// written is writes with mu held.
func (g *Gossip) written() uint8 {
	v := g.cfg.speaks.max
	for newest := range g.newest {
		v = min(v, newest)
	}
	return v
}

// spreads is the version that this host writes to all: memberlist tells what is new also those who
// have just ceased to answer.
func (g *Gossip) spreads() uint8 {
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.written()
	if time.Since(g.gone.last) < goneMemory {
		v = min(v, g.gone.newest)
	}
	return v
}

// gone is the oldest of the hosts that have ceased to answer of late.
type gone struct {
	newest uint8 // version that it speaks
	last   time.Time
}

// goneMemory is longer than memberlist tells the dead what is new (GossipToTheDeadTime: 30 s).
const goneMemory = 35 * time.Second

func (o *gone) add(newest uint8, now time.Time) {
	if now.Sub(o.last) >= goneMemory || newest < o.newest {
		o.newest = newest
	}
	o.last = now
}

// seal makes an envelope of this host, for members.
func (g *Gossip) seal(k kind, body []byte) []byte { return g.sealAs(g.writes(), k, body) }

func (g *Gossip) sealAs(version uint8, k kind, body []byte) []byte {
	return envelope{version, k, g.ClusterID(), g.self, body}.encode()
}
