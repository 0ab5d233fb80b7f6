package gossip

import (
	"hash/maphash"
	"sync"
)

// recent remembers the hashes of the last messages: gossip brings each several
// times, and to hash one is cheaper than to merge it.
type recent struct {
	mu   sync.Mutex
	seed maphash.Seed
	set  map[uint64]struct{}
	ring []uint64
	next int
}

func newRecent(limit int) *recent {
	return &recent{seed: maphash.MakeSeed(), set: map[uint64]struct{}{}, ring: make([]uint64, limit)}
}

func (r *recent) has(b []byte) bool {
	h := maphash.Bytes(r.seed, b)
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.set[h]
	return ok
}

func (r *recent) add(b []byte) {
	h := maphash.Bytes(r.seed, b)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.set[h]; ok {
		return
	}
	delete(r.set, r.ring[r.next])
	r.ring[r.next] = h
	r.set[h] = struct{}{}
	r.next = (r.next + 1) % len(r.ring)
}
