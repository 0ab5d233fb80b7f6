package gossip

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
)

// delta is a received message for State.Merge.
type delta struct {
	from string
	body []byte
}

// merger gives what other hosts say to the State.
type merger struct {
	*core
	state    State
	roster   *roster
	refusals *refusals
	spreader *spreader
	compare  func(peers int) // asks as many at once what they know

	incoming chan delta
	held     atomic.Int64 // bytes in incoming
	mu       sync.Mutex   // one State.MergeAll at a time
}

// enqueue queues a delta for loop, or drops it.
func (m *merger) enqueue(d delta) {
	if m.held.Add(int64(len(d.body))) <= incomingBytes {
		select {
		case m.incoming <- d:
			return
		default:
		}
	}
	m.held.Add(-int64(len(d.body)))
	m.stats.add(LostQueueFull, 1)
}

// loop merges received deltas and passes on what was new.
func (m *merger) loop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-m.incoming:
			batch := m.queued(d)
			if len(batch) == 0 {
				continue
			}
			fresh, errs := m.merge(batch)
			for i, d := range batch {
				if errs[i] == nil {
					m.spreader.seen.add(d.body)
				}
				m.spreader.relay(kindDelta, fresh[i])
				if len(fresh[i]) > MaxBroadcast {
					m.compare(newsPeers)
				}
			}
		}
	}
}

// mergeAtOnce bounds how many deltas are merged together.
const mergeAtOnce = 64

// queued takes what waits behind d, and leaves out what was seen before.
func (m *merger) queued(d delta) (batch []delta) {
	for {
		m.held.Add(-int64(len(d.body)))
		if !m.spreader.seen.has(d.body) {
			batch = append(batch, d)
		}
		if len(batch) == mergeAtOnce {
			return batch
		}
		select {
		case d = <-m.incoming:
		default:
			return batch
		}
	}
}

// merge gives messages to the State. If it panics they are given to it one by one.
func (m *merger) merge(batch []delta) (fresh [][]byte, errs []error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fresh, errs = m.mergeSafely(batch)
	if fresh == nil {
		for i := range batch {
			one, err := m.mergeSafely(batch[i : i+1])
			fresh, errs = append(fresh, one...), append(errs, err...)
		}
	}
	for i, err := range errs {
		if err != nil && !local(err) {
			from := batch[i].from
			_ = m.refusals.refuse(RefusedMerge, suspect+from, fmt.Errorf(refusedMark+"of what host %s%s sends: %w", from, place(m.roster.lastAddr(from)), shorten(err)))
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
func (m *merger) mergeSafely(batch []delta) (fresh [][]byte, errs []error) {
	defer func() {
		if p := recover(); p != nil && len(batch) > 1 {
			fresh, errs = nil, nil
		} else if p != nil {
			m.stats.add(HandlerPanic, 1)
			m.log.Error("merge panicked", "from", batch[0].from, "panic", p, "stack", string(debug.Stack()))
			fresh, errs = make([][]byte, 1), []error{fmt.Errorf("merge panicked: %v", p)}
		}
	}()
	msgs := make([][]byte, len(batch))
	for i, d := range batch {
		msgs[i] = d.body
	}
	return m.state.MergeAll(msgs)
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
