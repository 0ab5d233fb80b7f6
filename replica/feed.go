package replica

import (
	"slices"
	"sync"

	"github.com/grapevine-net/grapevine/cluster"
)

// feed tells any number of watchers that something has changed.
type feed struct {
	mu sync.Mutex
	ch chan struct{}
}

func newFeed() feed { return feed{ch: make(chan struct{})} }

func (f *feed) watch() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ch
}

func (f *feed) notify() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.ch)
	f.ch = make(chan struct{})
}

// packet is the size in bytes that messages to broadcast aim at: one UDP packet
// of memberlist, with room for its framing and encryption, at an MTU of 1280.
const packet = 1000

// maxPending is how many own records may wait to be broadcast.
const maxPending = 4096

// outbox holds the own writes that have not been broadcast yet. add never
// blocks; head and pop are for one goroutine.
type outbox struct {
	messages chan []byte
	more     chan struct{} // capacity 1: there may be pending records

	mu      sync.Mutex
	pending []cluster.Record

	ready [][]byte // of the goroutine that calls head
}

func newOutbox() outbox {
	return outbox{messages: make(chan []byte), more: make(chan struct{}, 1)}
}

func (o *outbox) add(recs []cluster.Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pending = append(o.pending, recs...)
	if drop := len(o.pending) - maxPending; drop > 0 {
		clear(o.pending[:drop])
		o.pending = o.pending[drop:] // not moved: each write would move thousands while nobody takes them
	}
	select {
	case o.more <- struct{}{}:
	default:
	}
}

// head returns the next message and the channel it goes to, nil if there is none.
func (o *outbox) head() ([]byte, chan<- []byte) {
	if len(o.ready) == 0 {
		o.mu.Lock()
		recs := o.pending
		o.pending = nil
		o.mu.Unlock()
		o.ready = slices.Collect(cluster.Chunks(slices.Values(recs), packet))
	}
	if len(o.ready) == 0 {
		return nil, nil
	}
	return o.ready[0], o.messages
}

func (o *outbox) pop() { o.ready = o.ready[1:] }
