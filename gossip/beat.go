package gossip

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"
)

// protoBeats is the first version whose hosts beat.
const protoBeats = 3

// roundsPerBeat is how often it is looked who is silent, while somebody may be.
const roundsPerBeat = 4

// beatLoop sends beats, and tells of whom none come.
func (g *Gossip) beatLoop(ctx context.Context) {
	every := g.cfg.Timing.Beat
	next := time.Now().Add(every) // beat
	t := time.NewTimer(every)
	defer t.Stop()
	var ring []nodeID
	var version uint8
	members, last := g.roster.members.Load(), time.Now()
	var before []nodeID
	absent := absences{}
	for calm := true; ; calm = g.watch.calm(time.Now()) {
		wait := max(time.Until(next), 0)
		if !calm {
			wait = min(wait, every/roundsPerBeat)
		}
		t.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		now := time.Now()
		if now.Sub(last) > wait+every*3/4 {
			g.watch.forgive(now)
		}
		last = now
		// Who was upgraded is the same member as before.
		if m, v := g.roster.members.Load(), g.roster.spoken.writes(); m != members || v != version {
			ring, members, version = g.beatRing(v), m, v
		}
		silent, tell := g.watch.round(ring, now)
		// Who has just gone silent is told at once: another watcher waits for that.
		due := !now.Before(next)
		if due || !slices.Equal(silent, before) {
			g.sendBeats(following(ring, g.self, watchers), silent)
		}
		if due {
			if next = next.Add(every); next.Before(now) {
				next = now.Add(every)
			}
		}
		before = silent
		g.meetAbsent(absent, g.watch.unheard(), now)
		for _, v := range tell {
			g.log.Debug("doubt", "host", v.host, "silent", v.silent)
			g.eagerly(g.relayDoubt(v.encode()))
		}
	}
}

// beatRing are the hosts that answer, and this one, if all of them know beats. Otherwise
// nobody is watched: a verdict could not be passed on, and who is older shows people a
// message that is newer than itself.
func (g *Gossip) beatRing(version uint8) []nodeID {
	if version < protoBeats {
		return []nodeID{g.self}
	}
	return g.roster.ring()
}

func (g *Gossip) sendBeats(to, silent []nodeID) {
	var nodes []*memberlist.Node
	for _, id := range to {
		if n := g.roster.nodeOf(id.String()); n != nil {
			nodes = append(nodes, n)
		}
	}
	if g.roster.spoken.writes() < protoBeats { // since the ring was made
		return
	}
	sealed := g.sealAs(protoBeats, kindBeat, g.watch.say(silent).encode())
	for _, n := range nodes {
		if err := g.ml.SendBestEffort(n, sealed); err != nil {
			g.log.Debug("beat", "host", n.Name, "err", err)
		}
	}
}

// heardBeat takes a host's beat.
func (g *Gossip) heardBeat(e envelope) {
	now := time.Now()
	if isOld(e.body, g.roster.knows) {
		// Refused, it is no replay: the agent of a host that went back to an older one says so for long.
		if b, err := decodeBeat(append(make([]byte, 8), e.body...)); err == nil {
			g.watch.hearOld(e.from, b.silent, now)
			return
		}
	}
	b, err := decodeBeat(e.body)
	switch {
	case err != nil:
		g.stats.add(RefusedGarbage, 1)
	case !g.watch.hear(e.from, b, now):
		g.stats.add(RefusedReplay, 1)
	}
}

// heardDoubt takes a verdict and passes it on, once.
func (g *Gossip) heardDoubt(b []byte) {
	v, err := decodeVerdict(b)
	switch {
	case err != nil:
		g.stats.add(RefusedGarbage, 1)
	case v.watcher == g.self:
		if no, ok := g.watch.deny(v, time.Now()); ok {
			g.eagerly(g.relayDoubt(no.encode()))
		}
	case g.watch.take(v, time.Now()):
		g.relayDoubt(b)
	}
}

// relayDoubt passes a verdict on, if all know what that is.
func (g *Gossip) relayDoubt(b []byte) []byte {
	if g.roster.spoken.writes() < protoBeats {
		return nil
	}
	return g.relay(kindDoubt, b)
}
