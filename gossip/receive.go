package gossip

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
)

// receive takes a message from memberlist: it copies, hands on and returns.
func (g *Gossip) receive(b []byte, pushPull bool) {
	e, err := decodeEnvelope(b, versions{min(protoProof, g.cfg.speaks.min), g.cfg.speaks.max})
	if err == nil && e.version < g.cfg.speaks.min && e.kind != kindRequest && e.kind != kindResponse { // but for proofs
		err = errVersion
	}
	switch {
	case errors.Is(err, errVersion):
		// Who speaks none of ours is refused by name, by NotifyAlive. Of a member this
		// was written before it knew us.
		g.stats.add(RefusedVersion, 1)
		return
	case err != nil:
		g.stats.add(RefusedGarbage, 1)
		return
	case e.from == g.self && e.kind != kindRequest && e.kind != kindResponse: // but for proofs
		return
	}
	switch ours := g.ClusterID(); {
	case ours == "" || e.cluster == "":
		g.stats.add(RefusedNoCluster, 1)
		return
	case e.cluster != ours:
		id := e.from.String()
		_ = g.refusals.refuseForeign(Foreign{ID: id, Cluster: e.cluster}, g.roster.lastAddr(id), ours)
		return
	}
	e.body = append([]byte(nil), e.body...)
	switch e.kind {
	case kindDelta:
		g.enqueue(delta{e.from.String(), e.body})
	case kindSum:
		g.heardSum(e.from.String(), e.body, pushPull)
	case kindRequest:
		g.heardRequest(e)
	case kindResponse:
		g.heardResponse(e.from.String(), e.body)
	case kindBeat:
		g.heardBeat(e)
	case kindDoubt:
		g.heardDoubt(e.body)
	}
}

// enqueue queues a delta for mergeLoop, or drops it.
func (g *Gossip) enqueue(d delta) {
	if g.incomingHeld.Add(int64(len(d.body))) <= incomingBytes {
		select {
		case g.incoming <- d:
			return
		default:
		}
	}
	g.incomingHeld.Add(-int64(len(d.body)))
	g.stats.add(LostQueueFull, 1)
}

// mergeLoop merges received deltas and passes on what was new.
func (g *Gossip) mergeLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-g.incoming:
			batch := g.queued(d)
			if len(batch) == 0 {
				continue
			}
			fresh, errs := g.merge(batch)
			for i, d := range batch {
				if errs[i] == nil {
					g.seen.add(d.body)
				}
				g.relay(kindDelta, fresh[i])
				if len(fresh[i]) > MaxBroadcast {
					g.compareWith(newsPeers)
				}
			}
		}
	}
}

// mergeAtOnce bounds how many deltas are merged together.
const mergeAtOnce = 64

// queued takes what waits behind d, and leaves out what was seen before.
func (g *Gossip) queued(d delta) (batch []delta) {
	for {
		g.incomingHeld.Add(-int64(len(d.body)))
		if !g.seen.has(d.body) {
			batch = append(batch, d)
		}
		if len(batch) == mergeAtOnce {
			return batch
		}
		select {
		case d = <-g.incoming:
		default:
			return batch
		}
	}
}

// merge gives messages to the State. If it panics they are given to it one by one.
func (g *Gossip) merge(batch []delta) (fresh [][]byte, errs []error) {
	g.mergeMu.Lock()
	defer g.mergeMu.Unlock()
	fresh, errs = g.mergeSafely(batch)
	if fresh == nil {
		for i := range batch {
			one, err := g.mergeSafely(batch[i : i+1])
			fresh, errs = append(fresh, one...), append(errs, err...)
		}
	}
	for i, err := range errs {
		if err != nil && !local(err) {
			from := batch[i].from
			_ = g.refusals.refuse(RefusedMerge, suspect+from, fmt.Errorf(refusedMark+"of what host %s%s sends: %w", from, place(g.roster.lastAddr(from)), shorten(err)))
		}
	}
	return fresh, errs
}

// local says whether an error is this host's own.
func local(err error) bool {
	var own interface{ Local() bool }
	return errors.As(err, &own) && own.Local()
}

// mergeSafely makes a panic of the State for one message an error like others: what makes
// one host's State panic would go on to fell the next. For several it returns nil.
func (g *Gossip) mergeSafely(batch []delta) (fresh [][]byte, errs []error) {
	defer func() {
		if p := recover(); p != nil && len(batch) > 1 {
			fresh, errs = nil, nil
		} else if p != nil {
			g.stats.add(HandlerPanic, 1)
			g.log.Error("merge panicked", "from", batch[0].from, "panic", p, "stack", string(debug.Stack()))
			fresh, errs = make([][]byte, 1), []error{fmt.Errorf("merge panicked: %v", p)}
		}
	}()
	msgs := make([][]byte, len(batch))
	for i, d := range batch {
		msgs[i] = d.body
	}
	return g.state.MergeAll(msgs)
}

// maxProblem bounds the text of a problem, bytes.
const maxProblem = 400

// shorten cuts the text of an error that joins many.
func shorten(err error) error {
	text, rest, more := strings.Cut(err.Error(), "\n")
	if len(text) > maxProblem {
		text = strings.ToValidUTF8(text[:maxProblem], "") + "..."
	}
	if more {
		text = fmt.Sprintf("%s (and %d more)", text, 1+strings.Count(rest, "\n"))
	}
	return errors.New(text)
}
