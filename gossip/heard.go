package gossip

import (
	"context"
	"sync"
	"time"
)

// Who was stalled (a process that was stopped, a host that slept) believes for a moment that all is as it was, and takes
// what others said meanwhile, and what still waits in its sockets, for news: the doubt of who was away itself is no
// suspicion on others (watch.forgive). Where two hosts must not both believe that they are on the larger side, that is too
// little: there a host counts only if it has proven, since this one ran without a stall, that it is there.

// hearer knows which hosts have.
type hearer struct {
	*core
	roster   *roster
	prover   *prover
	patience time.Duration // of others: who does not beat for so long is in doubt
	awake    func() time.Duration

	mu     sync.Mutex
	turned time.Duration // when this host has looked last who is silent, which it does with each beat
	stalls int
	proven map[string]bool
	asked  map[string]time.Duration // when they were asked first
	asking map[string]bool
}

// answerTime is how long it may take until who is there has proven it. Others need longer to doubt who is not.
const answerTime = 400 * time.Millisecond

func newHearer(c *core, r *roster, p *prover, w *watch) *hearer {
	h := &hearer{core: c, roster: r, prover: p, patience: w.patience(false), awake: c.cfg.Awake, proven: map[string]bool{}, asked: map[string]time.Duration{}, asking: map[string]bool{}}
	if h.awake == nil {
		h.awake = func() time.Duration { return time.Since(c.started) }
	}
	h.turned = h.awake()
	return h
}

// turn is called whenever this host beats, or could.
func (h *hearer) turn() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turned = h.look()
}

// look notices a stall, whoever is first to run after it, with mu held.
func (h *hearer) look() (now time.Duration) {
	if now = h.awake(); now-h.turned > h.patience {
		h.turned = now
		h.stalls++
		clear(h.proven)
		clear(h.asked)
	}
	return now
}

// heard is Gossip.Heard.
func (h *hearer) heard(id string) (heard, known bool) {
	m, met := h.roster.get(id)
	if !met || m.State != Alive || m.Doubtful {
		return false, true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.look()
	if h.proven[id] {
		return true, true
	}
	if _, ok := h.asked[id]; !ok {
		h.asked[id] = now
	}
	known = now-h.asked[id] > answerTime
	node, err := parseNode(id)
	if err != nil || h.asking[id] {
		return false, known
	}
	h.asking[id] = true
	run := h.stalls
	if !h.work.spawn(func(ctx context.Context) {
		_, there := h.prover.whoIs(ctx, node, m.Addr, proofPatience)
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.asking, id)
		// A question from before a stall may have been answered before it, too.
		if h.look(); there && h.stalls == run {
			h.proven[id] = true
		}
	}) {
		delete(h.asking, id)
	}
	return false, known
}
