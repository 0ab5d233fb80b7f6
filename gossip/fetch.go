package gossip

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// A fetch is a call and calls back. The fetching host calls methodFetch with its
// digest; the other, while that call lasts, calls methodChunk with one piece
// after the other of what the digest lacks, each when the one before is merged,
// and then answers with their number. So nothing is merged after a gap, the
// sender holds one chunk at a time, and a slow receiver slows the sender.
//
//	fetch: session 8 | mutual 1 | digest  ->  chunks 4
//	chunk: session 8 | number 4 | message ->  nothing
const (
	methodFetch = "gossip.fetch"
	methodChunk = "gossip.chunk"

	chunkTimeout = 20 * time.Second
	// fetchIdle is how long a fetch waits for the next chunk, or for the last word, before
	// another peer is asked: longer than it takes to open a few streams (sendTries).
	fetchIdle = 3 * sendTries * dialTimeout
	servings  = 4 // fetches served at once; more are told to come again
)

// sessionTable holds the fetches that wait for chunks.
type sessionTable struct {
	mu      *sync.Mutex
	open    map[uint64]*session
	serving chan struct{}
}

type session struct {
	mu    sync.Mutex
	from  string
	next  uint32
	fresh bool
	idle  *time.Timer // ends the fetch
}

var errIdle = errors.New("no more of it comes")

func newSessionTable() sessionTable {
	return sessionTable{&sync.Mutex{}, map[uint64]*session{}, make(chan struct{}, servings)}
}

// fetcher gets from others what they know and this host does not, and gives it to them.
type fetcher struct {
	*core
	state    State
	caller   *caller
	merger   *merger
	spreader *spreader
	hint     func(hint) // of a host that is to be fetched from
	sessions sessionTable
}

// fetch gets from a peer what we lack and reports whether any of it was new. With
// mutual the peer fetches from us afterwards, if our digest differs from its own.
func (f *fetcher) fetch(ctx context.Context, from string, mutual bool) (fresh bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	id, s := rand.Uint64(), &session{from: from}
	s.idle = time.AfterFunc(fetchIdle, func() { cancel(errIdle) })
	defer s.idle.Stop()
	f.sessions.mu.Lock()
	f.sessions.open[id] = s
	f.sessions.mu.Unlock()
	defer func() {
		f.sessions.mu.Lock()
		delete(f.sessions.open, id)
		f.sessions.mu.Unlock()
	}()
	body := append(binary.BigEndian.AppendUint64(nil, id), 0)
	if mutual {
		body[8] = 1
	}
	reply, err := f.caller.once(ctx, from, methodFetch, append(body, f.state.Digest()...))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && (len(reply) != 4 || binary.BigEndian.Uint32(reply) != s.next) {
		err = fmt.Errorf("fetch from host %s: it counts %x chunks, %d have come", from, reply, s.next)
	}
	return s.fresh, err
}

// serveFetch is the other side of fetch. The chunks are of the given version.
func (f *fetcher) serveFetch(ctx context.Context, from *memberlist.Node, version uint8, body []byte) ([]byte, error) {
	if len(body) < 9 {
		return nil, errShort
	}
	select {
	case f.sessions.serving <- struct{}{}:
		defer func() { <-f.sessions.serving }()
	default:
		f.stats.add(LostBusy, 1)
		return nil, errBusy
	}
	digest := body[9:]
	if bytes.Equal(digest, f.state.Digest()) {
		return make([]byte, 4), nil
	}
	number := uint32(0)
	next, stop := iter.Pull(f.state.Missing(digest, chunkSize))
	defer stop()
	for chunk, ok := next(); ok; number++ {
		msg := append([]byte(nil), body[:8]...)
		msg = append(binary.BigEndian.AppendUint32(msg, number), chunk...)
		sent := make(chan error, 1)
		go func() { sent <- f.sendChunk(ctx, from, version, msg) }()
		chunk, ok = next() // while the peer merges
		if err := <-sent; err != nil {
			return nil, fmt.Errorf("chunk %d: %w", number, err)
		}
	}
	if body[8] == 1 {
		f.hint(hint{from: from.Name})
	}
	return binary.BigEndian.AppendUint32(nil, number), nil
}

func (f *fetcher) sendChunk(ctx context.Context, to *memberlist.Node, version uint8, msg []byte) error {
	ctx, cancel := context.WithTimeout(ctx, chunkTimeout)
	defer cancel()
	_, err := f.caller.node(ctx, to, version, methodChunk, msg)
	return err
}

// serveChunk merges a chunk that we are waiting for. What is new in it is passed
// on if it is small: it may be a single lost broadcast. A long difference is left
// to the other hosts' own comparisons.
func (f *fetcher) serveChunk(from string, body []byte) ([]byte, error) {
	if len(body) < 12 {
		return nil, errShort
	}
	f.sessions.mu.Lock()
	s := f.sessions.open[binary.BigEndian.Uint64(body)]
	f.sessions.mu.Unlock()
	if s == nil || s.from != from {
		f.stats.add(RefusedCall, 1)
		return nil, errors.New("no fetch waits for this chunk")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if number := binary.BigEndian.Uint32(body[8:]); number != s.next {
		f.stats.add(RefusedCall, 1)
		return nil, fmt.Errorf("chunk %d out of turn: %d is next", number, s.next)
	}
	s.next++
	s.idle.Stop()
	defer s.idle.Reset(fetchIdle)
	// An error is counted and logged, and the fetch goes on: one record that is
	// refused must not keep the others away.
	fresh, _ := f.merger.merge([]delta{{s.from, body[12:]}})
	if len(fresh[0]) > 0 {
		s.fresh = true
	}
	if len(fresh[0]) <= MaxBroadcast {
		f.spreader.relay(kindDelta, fresh[0])
	}
	return nil, nil
}
