package gossip

import (
	"encoding/binary"
	"hash/crc32"
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

// pass returns what memberlist is to have of a packet, and whether it is to have anything.
func (s *screen) pass(b []byte) (packet []byte, is bool) {
	if take := s.door.cfg.Datagram; take != nil && take(b) {
		return nil, false
	}
	if plain, ok := s.door.opener.open(s.door.keyring.opening(), b, nil, s.scratch); ok {
		said := beatIn(b[0], plain)
		switch {
		case said != nil:
			s.door.beats(said, false)
			return nil, false
		case b[0] == 1 && soften(plain): // of version 0 it is padded
			return s.door.opener.seal(s.door.keyring.keys.GetPrimaryKey(), plain), true
		}
		return b, true
	}
	if now := time.Now(); now.Sub(s.second) > time.Second {
		s.second, s.shown = now, 0
	}
	if s.shown++; s.shown <= maxComplaints {
		return b, true
	}
	s.door.stats.add(RefusedKey, 1)
	return nil, false
}

// memberlist's kinds of packets.
const (
	userPacket    = 8
	checkedPacket = 12 // behind it come a checksum of the rest, and the rest
)

// beatIn returns the envelope of a packet that is one beat, as most of those of hosts at rest are; nil: it is something
// else. Memberlist would open it once more, and wake two goroutines, one after the other, to hand it to us.
func beatIn(version byte, plain []byte) []byte {
	if version != 1 { // of version 0 it is padded
		return nil
	}
	if len(plain) >= 5 && plain[0] == checkedPacket {
		if crc32.ChecksumIEEE(plain[5:]) != binary.BigEndian.Uint32(plain[1:]) {
			return nil
		}
		plain = plain[5:]
	}
	if len(plain) < 3 || plain[0] != userPacket || kind(plain[2]) != kindBeat && kind(plain[2]) != kindSlow {
		return nil
	}
	return plain[1:]
}
