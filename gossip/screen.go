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
	t       *transport
	scratch []byte
	second  time.Time // when shown began to count
	shown   int
}

func newScreen(t *transport) *screen { return &screen{t: t, scratch: make([]byte, 0, 1<<16)} }

// pass reports whether a packet is for memberlist.
func (s *screen) pass(b []byte) bool {
	if g := s.t.g; g.cfg.Datagram != nil && g.cfg.Datagram(b) {
		return false
	}
	if s.t.g.door.opener.opens(s.t.g.keyring.opening(), b, nil, s.scratch) {
		return true
	}
	if now := time.Now(); now.Sub(s.second) > time.Second {
		s.second, s.shown = now, 0
	}
	if s.shown++; s.shown <= maxComplaints {
		return true
	}
	s.t.g.stats.add(RefusedKey, 1)
	return false
}
