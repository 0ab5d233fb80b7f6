package gossip

import (
	"time"
)

// maxComplaints is how many packets a second that no key opens memberlist is shown, which has
// words for each. The others are counted.
const maxComplaints = 32

// screen looks at each packet before anything is kept of it: who has no key costs one
// decryption of what he sends. It is called by one goroutine.
type screen struct {
	door    *door
	scratch []byte
	second  time.Time // when shown began to count
	shown   int
}

func newScreen(d *door) *screen { return &screen{door: d, scratch: make([]byte, 0, 1<<16)} }

// pass reports whether a packet is for memberlist.
func (s *screen) pass(b []byte) bool {
	if take := s.door.cfg.Datagram; take != nil && take(b) {
		return false
	}
	if s.door.opener.opens(s.door.keyring.opening(), b, nil, s.scratch) {
		return true
	}
	if now := time.Now(); now.Sub(s.second) > time.Second {
		s.second, s.shown = now, 0
	}
	if s.shown++; s.shown <= maxComplaints {
		return true
	}
	s.door.stats.add(RefusedKey, 1)
	return false
}
