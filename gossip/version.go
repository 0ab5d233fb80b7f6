package gossip

import "fmt"

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

// writes is the version that this host writes: the newest that it and all members
// that answer speak. What was on its way to a host that has just come, or was upgraded
// or replaced by an older one, may have another; anti-entropy mends that.
func (g *Gossip) writes() uint8 {
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.cfg.speaks.max
	for newest := range g.newest {
		v = min(v, newest)
	}
	return v
}

// seal makes an envelope of this host, for members.
func (g *Gossip) seal(k kind, body []byte) []byte { return g.sealAs(g.writes(), k, body) }

func (g *Gossip) sealAs(version uint8, k kind, body []byte) []byte {
	return envelope{version, k, g.ClusterID(), g.self, body}.encode()
}
