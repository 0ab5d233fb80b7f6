package gossip

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	maxHandlers = 128 // handlers that run at once; more calls are told to come again
	maxServing  = 512 // requests in any stage; more are dropped
	maxTimeout  = 10 * time.Minute
	maxErrText  = 4 << 10
)

// Handler answers a call from another host (or this one). Its context ends with
// the caller's patience or with Gossip. It must not change body, nor keep it.
type Handler func(ctx context.Context, from string, body []byte) ([]byte, error)

// Handle sets the handler of a method, replacing an earlier one. Methods that
// begin with "gossip." are this package's own. A panic in a handler is counted,
// logged and returned to the caller as an error.
func (g *Gossip) Handle(method string, h Handler) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.handlers[method] = h
}

func (g *Gossip) handler(method string) Handler {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.handlers[method]
}

// heardRequest starts a goroutine for a request, if there are not too many.
func (g *Gossip) heardRequest(e envelope) {
	r, err := decodeRequest(e.version, e.body)
	if err != nil {
		g.stats.add(RefusedGarbage, 1)
		return
	}
	if e.version < g.cfg.speaks.min && r.method != methodProve {
		g.stats.add(RefusedVersion, 1)
		return
	}
	if e.from == g.self {
		if r.method != methodProve {
			return
		}
		if !g.running.Load() {
			g.stats.add(LostBusy, 1)
			return
		}
		g.suspectTwin(g.addr, twin{g.self, r.reply}) // it may be this host, at an address that it had
	}
	if g.serving.Add(1) > maxServing || !g.work.spawn(func(ctx context.Context) {
		defer g.serving.Add(-1)
		select {
		case <-g.begun: // until then handlers are being set
			g.serve(ctx, e, r)
		case <-time.After(min(r.timeout, maxTimeout)):
		case <-ctx.Done():
		}
	}) {
		g.serving.Add(-1)
		g.stats.add(LostBusy, 1)
	}
}

// caller is where the response goes: to the host as we know it, or, if the word
// of it has not reached us yet, where it says it is.
func (g *Gossip) caller(from string, r request) *memberlist.Node {
	if n := g.roster.nodeOf(from); n != nil {
		return n
	}
	return &memberlist.Node{Name: from, Addr: net.IP(r.reply.Addr().AsSlice()), Port: r.reply.Port()}
}

// serve runs a request and sends the response, in no newer version than the request's:
// the caller need not be a member that is known here yet.
func (g *Gossip) serve(ctx context.Context, e envelope, r request) {
	from, version := g.caller(e.from.String(), r), min(e.version, g.roster.spoken.writes())
	ctx, cancel := context.WithTimeout(ctx, min(r.timeout, maxTimeout))
	defer cancel()
	var result []byte
	var err error
	switch r.method {
	case methodProve:
		result, err = g.serveProve(r.body)
	case methodChunk:
		result, err = g.serveChunk(from.Name, r.body)
	default:
		switch g.admit(e, r) {
		case standingServed:
			g.stats.add(RefusedReplay, 1)
			return
		case standingStale:
			err = staleError(g.epochs.current())
		case standingFresh:
			if r.method == methodFetch {
				result, err = g.serveFetch(ctx, from, version, r.body)
				break
			}
			result, err = g.run(ctx, g.handler(r.method), from.Name, r.method, r.body)
		}
	}
	if err == nil && len(result) > MaxBody {
		result, err = nil, fmt.Errorf("response of %d bytes: at most %d", len(result), MaxBody)
	}
	reply := response{r.id, statusOK, result}
	var stale staleError
	switch {
	case errors.As(err, &stale):
		reply = response{r.id, statusBusy, binary.BigEndian.AppendUint64(nil, uint64(stale))}
	case errors.Is(err, errBusy):
		reply = response{r.id, statusBusy, nil}
	case err != nil:
		text := err.Error()
		reply = response{r.id, statusError, []byte(text[:min(len(text), maxErrText)])}
	}
	if err := g.sendReliable(ctx, from, g.sealAs(version, kindResponse, reply.encode())); err != nil {
		g.log.Debug("respond", "host", from.Name, "method", r.method, "err", err)
	}
}

// admit judges a request of another host. Chunks and proofs are not judged: of the former only
// those that are waited for are taken, and of the latter nothing comes. While there are hosts
// whose requests name no epoch, one without is taken for one of this epoch.
func (g *Gossip) admit(e envelope, r request) standing {
	epoch := r.epoch
	if e.version < protoEpochs && g.roster.spoken.writes() < protoEpochs {
		epoch = g.epochs.current()
	}
	return g.epochs.admit(epoch, servedCall{e.from, r.id})
}

// staleError says that a request is of another epoch than this, the current one.
type staleError uint64

func (e staleError) Error() string { return "the request is of an earlier time" }

// run calls a handler, if there is one and a slot for it.
func (g *Gossip) run(ctx context.Context, h Handler, from, method string, body []byte) (result []byte, err error) {
	if h == nil {
		g.stats.add(RefusedCall, 1)
		return nil, fmt.Errorf("unknown method %.64q: is this host's agent older?", method)
	}
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	default:
		g.stats.add(LostBusy, 1)
		return nil, errBusy
	}
	defer func() {
		if p := recover(); p != nil {
			g.stats.add(HandlerPanic, 1)
			g.log.Error("handler panicked", "method", method, "from", from, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("handler panicked: %v", p)
		}
	}()
	return h(ctx, from, body)
}
