package gossip

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// protoBeats is the first version whose hosts beat.
const protoBeats = 3

// protoSlow is the first version that knows slow beats.
const protoSlow = 4

// roundsPerBeat is how often it is looked who is silent, while somebody may be.
const roundsPerBeat = 4

// beater says that this host is there, and hears who is not.
type beater struct {
	*core
	watch    *watch
	hearer   *hearer
	roster   *roster
	post     *post
	meeter   *meeter
	spreader *spreader

	idle atomic.Bool   // nothing needs a dead host found at once
	turn chan struct{} // room for one: idle has changed, or who is there
}

// hurry is Gossip.Hurry.
func (b *beater) hurry(yes bool) {
	if b.idle.Swap(!yes) == yes {
		poke(b.turn)
	}
}

// met is called when a host has come or gone. Who beats slowly tells those that are to watch it from now on at once.
func (b *beater) met() {
	if b.idle.Load() {
		poke(b.turn)
	}
}

// slow reports whether this host's beats are slow. Who does not know that would take it for silent.
func (b *beater) slow() bool { return b.idle.Load() && b.post.writes() >= protoSlow }

// loop sends beats, and tells of whom none come.
func (b *beater) loop(ctx context.Context) {
	every := b.watch.pace(b.slow())
	next := time.Now().Add(b.cfg.again(every)) // beat
	t := time.NewTimer(every)
	defer t.Stop()
	var circle []nodeID
	var version uint8
	members, last := b.roster.members.Load(), time.Now()
	beaten := last
	var before []nodeID
	absent := absences{}
	for calm := true; ; calm = b.watch.calm(time.Now()) {
		wait := max(time.Until(next), 0)
		if !calm {
			wait = min(wait, every/roundsPerBeat)
		}
		t.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-b.turn:
		}
		now := time.Now()
		slow := b.slow()
		pace := b.watch.pace(slow)
		turned := pace != every
		if turned {
			every, next = pace, now // those who watch this host are told
		}
		if now.Sub(last) > wait+every*3/4 {
			b.watch.forgive(now)
		}
		last = now
		b.hearer.turn()
		// Who was upgraded is the same member as before.
		if m, v := b.roster.members.Load(), b.post.writes(); m != members || v != version {
			circle, members, version = b.circle(v), m, v
			if soon := beaten.Add(b.cfg.Timing.Beat); slow && soon.Before(next) {
				next = soon
			}
		}
		silent, tell := b.watch.round(circle, now)
		// Who has just gone silent is told at once: another watcher waits for that.
		due := !now.Before(next)
		if due || !slices.Equal(silent, before) {
			b.send(following(circle, b.self, watchers), silent, slow)
		}
		if due {
			if next, beaten = next.Add(every), now; turned || slow || next.Before(now) {
				next = now.Add(b.cfg.again(every))
			}
			b.spreader.pace.beat(b.cfg.atMoment(b.cfg.Timing.Probe), turned)
		}
		before = silent
		b.meeter.absent(absent, b.watch.unheard(), now)
		for _, v := range tell {
			b.log.Debug("doubt", "host", v.host, "silent", v.silent)
			b.spreader.eagerly(b.relayDoubt(v.encode()))
		}
	}
}

// circle are the hosts that answer, and this one, if all of them know beats. Otherwise
// nobody is watched: a suspicion could not be passed on, and who is older shows people a
// message that is newer than itself.
func (b *beater) circle(version uint8) []nodeID {
	if version < protoBeats {
		return []nodeID{b.self}
	}
	return b.roster.circle()
}

func (b *beater) send(to, silent []nodeID, slow bool) {
	var nodes []*memberlist.Node
	for _, id := range to {
		if n := b.roster.nodeOf(id.String()); n != nil {
			nodes = append(nodes, n)
		}
	}
	version := b.post.writes() // since the circle was made an older host may have come
	if len(nodes) == 0 || version < protoBeats {
		return
	}
	k := kindBeat
	switch {
	case slow && version >= protoSlow:
		k = kindSlow
	case slow:
		poke(b.turn) // it expects the next one soon
	}
	b.post.same(nodes, b.post.sealAs(version, k, b.watch.say(silent).encode()))
}

// heardBeat takes a host's beat.
func (b *beater) heardBeat(e envelope) {
	now := time.Now()
	if e.kind != kindSlow && isOld(e.body, b.roster.knows) {
		// Refused, it is no replay: the agent of a host that went back to an older one says so for long.
		if old, err := decodeBeat(append(make([]byte, 8), e.body...)); err == nil {
			b.watch.hearOld(e.from, old.silent, now)
			return
		}
	}
	said, err := decodeBeat(e.body)
	switch {
	case err != nil:
		b.stats.add(RefusedGarbage, 1)
	case !b.watch.hear(e.from, said, e.kind == kindSlow, now):
		b.stats.add(RefusedReplay, 1)
	}
}

// heardDoubt takes a suspicion and passes it on, once.
func (b *beater) heardDoubt(body []byte) {
	v, err := decodeSuspicion(body)
	switch {
	case err != nil:
		b.stats.add(RefusedGarbage, 1)
	case v.watcher == b.self:
		if no, ok := b.watch.deny(v, time.Now()); ok {
			b.spreader.eagerly(b.relayDoubt(no.encode()))
		}
	case b.watch.take(v, time.Now()):
		b.relayDoubt(body)
	}
}

// relayDoubt passes a suspicion on, if all know what that is.
func (b *beater) relayDoubt(suspicion []byte) []byte {
	if b.post.writes() < protoBeats {
		return nil
	}
	return b.spreader.relay(kindDoubt, suspicion)
}
