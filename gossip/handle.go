package gossip

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
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

// server answers what other hosts ask.
type server struct {
	*core
	roster  *roster
	post    *post
	prover  *prover
	clones  *clones
	fetcher *fetcher
	epochs  *epochs
	begun   chan struct{} // closed when this host runs

	slots   chan struct{} // of running handlers
	serving atomic.Int32  // requests in any stage

	mu       sync.Mutex
	handlers map[string]Handler
}

// handle is Gossip.Handle.
func (s *server) handle(method string, h Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers[method] = h
}

func (s *server) handler(method string) Handler {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handlers[method]
}

// heard starts a goroutine for a request, if there are not too many.
func (s *server) heard(e envelope) {
	r, err := decodeRequest(e.version, e.body)
	if err != nil {
		s.stats.add(RefusedGarbage, 1)
		return
	}
	if e.version < s.cfg.speaks.min && r.method != methodProve {
		s.stats.add(RefusedVersion, 1)
		return
	}
	if e.from == s.self {
		if r.method != methodProve {
			return
		}
		if !s.runs() {
			s.stats.add(LostBusy, 1)
			return
		}
		s.clones.suspect(s.addr, clone{s.self, r.reply}) // it may be this host, at an address that it had
	}
	if s.serving.Add(1) > maxServing || !s.work.spawn(func(ctx context.Context) {
		defer s.serving.Add(-1)
		select {
		case <-s.begun: // until then handlers are being set
			s.serve(ctx, e, r)
		case <-time.After(min(r.timeout, maxTimeout)):
		case <-ctx.Done():
		}
	}) {
		s.serving.Add(-1)
		s.stats.add(LostBusy, 1)
	}
}

// runs reports whether this host runs: until then handlers are being set.
func (s *server) runs() bool {
	select {
	case <-s.begun:
		return true
	default:
		return false
	}
}

// caller is where the response goes: to the host as we know it, or, if the word
// of it has not reached us yet, where it says it is.
func (s *server) caller(from string, r request) *memberlist.Node {
	if n := s.roster.nodeOf(from); n != nil {
		return n
	}
	return &memberlist.Node{Name: from, Addr: net.IP(r.reply.Addr().AsSlice()), Port: r.reply.Port()}
}

// serve runs a request and sends the response, in no newer version than the request's:
// the caller need not be a member that is known here yet.
func (s *server) serve(ctx context.Context, e envelope, r request) {
	from, version := s.caller(e.from.String(), r), min(e.version, s.post.writes())
	ctx, cancel := context.WithTimeout(ctx, min(r.timeout, maxTimeout))
	defer cancel()
	var result []byte
	var err error
	switch r.method {
	case methodProve:
		result, err = s.prover.serve(r.body)
	case methodChunk:
		result, err = s.fetcher.serveChunk(from.Name, r.body)
	default:
		switch s.admit(e, r) {
		case standingServed:
			s.stats.add(RefusedReplay, 1)
			return
		case standingStale:
			err = staleError(s.epochs.current())
		case standingFresh:
			if r.method == methodFetch {
				result, err = s.fetcher.serveFetch(ctx, from, version, r.body)
				break
			}
			result, err = s.run(ctx, from.Name, r.method, r.body)
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
	if err := s.post.sendReliable(ctx, from, s.post.sealAs(version, kindResponse, reply.encode())); err != nil {
		s.log.Debug("respond", "host", from.Name, "method", r.method, "err", err)
	} else if r.method == methodProve {
		s.roster.triedBy(from.Name)
	}
}

// admit judges a request of another host. Chunks and proofs are not judged: of the former only
// those that are waited for are taken, and of the latter nothing comes. While there are hosts
// whose requests name no epoch, one without is taken for one of this epoch.
func (s *server) admit(e envelope, r request) standing {
	epoch := r.epoch
	if e.version < protoEpochs && s.post.writes() < protoEpochs {
		epoch = s.epochs.current()
	}
	return s.epochs.admit(epoch, servedCall{e.from, r.id})
}

// staleError says that a request is of another epoch than this, the current one.
type staleError uint64

func (e staleError) Error() string { return "the request is of an earlier time" }

// run calls a handler, if there is one and a slot for it.
func (s *server) run(ctx context.Context, from, method string, body []byte) (result []byte, err error) {
	h := s.handler(method)
	if h == nil {
		s.stats.add(RefusedCall, 1)
		return nil, fmt.Errorf("unknown method %.64q: is this host's agent older?", method)
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		s.stats.add(LostBusy, 1)
		return nil, errBusy
	}
	defer func() {
		if p := recover(); p != nil {
			s.stats.add(HandlerPanic, 1)
			s.log.Error("handler panicked", "method", method, "from", from, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("handler panicked: %v", p)
		}
	}()
	return h(ctx, from, body)
}
