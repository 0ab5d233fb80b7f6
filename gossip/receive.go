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
	e, err := decodeEnvelope(b, g.cfg.speaks)
	switch {
	case errors.Is(err, errVersion):
		// Who speaks none of ours is refused by name, by NotifyAlive. Of a member this
		// was written before it knew us.
		g.stats.add(RefusedVersion, 1)
		return
	case err != nil:
		g.stats.add(RefusedGarbage, 1)
		return
	case e.from == g.self:
		return
	}
	switch ours := g.ClusterID(); {
	case ours == "" || e.cluster == "":
		g.stats.add(RefusedNoCluster, 1)
		return
	case e.cluster != ours:
		id := e.from.String()
		_ = g.refuse(RefusedCluster, "cluster "+id, clusterError(id, g.lastAddr(id), e.cluster, ours))
		return
	}
	e.body = append([]byte(nil), e.body...)
	switch e.kind {
	case kindDelta:
		g.enqueue(delta{e.from, e.body})
	case kindSum:
		g.heardSum(e.from.String(), e.body, pushPull)
	case kindRequest:
		g.heardRequest(e)
	case kindResponse:
		g.heardResponse(e.from.String(), e.body)
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
			g.incomingHeld.Add(-int64(len(d.body)))
			if g.seen.has(d.body) {
				continue
			}
			fresh, err := g.merge(d.from.String(), d.body)
			if err == nil {
				g.seen.add(d.body)
			}
			g.relay(fresh)
		}
	}
}

// merge gives a message to the State. A panic in it is an error like others: what
// makes one host's State panic would go on to fell the next.
func (g *Gossip) merge(from string, b []byte) (fresh []byte, err error) {
	g.mergeMu.Lock()
	defer g.mergeMu.Unlock()
	defer func() {
		if p := recover(); p != nil {
			g.stats.add(HandlerPanic, 1)
			g.log.Error("merge panicked", "from", from, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("merge panicked: %v", p)
		}
	}()
	if fresh, err = g.state.Merge(b); err != nil {
		_ = g.refuse(RefusedMerge, suspect+from, fmt.Errorf(refusedMark+"of what host %s (%v) sends: %w", from, g.lastAddr(from), shorten(err)))
	}
	return fresh, err
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
