package probe

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"

	"github.com/grapevine-net/grapevine/diagnose/paths"
)

// Whoever is on the wire can send VXLAN in a host's name. So a hello is sealed: nobody without the cluster's
// gossip key can say that a way works, or that it does not, and nobody can say so again. A sealed hello is
//
//	"gvhello2" | sender's ID 8 | milliseconds to the next 4 | hears 1 | large, inside 1 | number 8 | seal 16 | count 4 | seal of that 8 | zeros
//
// The count is in small ones, of those to this host, which knows by it how many are lost on the way. It has a seal of its own:
// agents that do not know it do not heed what is behind the first.
// The seal is also over the runs of both agents, which are in their records and not in the hello: one that was
// said to an earlier run of the hearer, or by one of the sender, or to another host, is none. Of the others each
// number counts once.
const sealedMagic = "gvhello2"

const (
	sealSize   = 16
	sealedSize = helloSize + 8 + sealSize
	countSize  = 4 + 8
)

// Ring is what hellos are sealed and told by.
type Ring struct {
	Self string
	Run  uint64 // of this agent: random, and in its record
	// Keys are the gossip keys: the first seals, all are tried.
	Keys [][]byte
	// Peers are the runs of the other hosts that say hello, by ID; 0 is an agent from before there were seals.
	Peers map[string]uint64
}

// seals keeps a Ring, and what has been said and heard by it.
type seals struct {
	mu    sync.Mutex
	ring  Ring
	keys  [][]byte // of the seals
	said  uint64
	heard map[string]*heardOf
}

// heardOf are the numbers that a run of a host has used: the highest, and which of the 64 up to it.
type heardOf struct {
	run, last, some uint64
}

func (s *seals) know(r Ring) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.EqualFunc(s.ring.Keys, r.Keys, bytes.Equal) {
		s.keys = nil
		for _, k := range r.Keys {
			mac := hmac.New(sha256.New, k)
			mac.Write([]byte("grapevine says hello"))
			s.keys = append(s.keys, mac.Sum(nil))
		}
	}
	s.ring = r
	heard := map[string]*heardOf{}
	for id, run := range r.Peers {
		if h := s.heard[id]; h != nil && h.run == run {
			heard[id] = h
		} else if run != 0 {
			heard[id] = &heardOf{run: run}
		}
	}
	s.heard = heard
}

// write makes a hello to a host.
func (s *seals) write(to string, h paths.Hello, length int) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	run, known := s.ring.Peers[to]
	b, err := encodeHello(h, length)
	if err != nil || known && run == 0 {
		return b, err
	}
	if !known || len(s.keys) == 0 {
		return nil, fmt.Errorf("say hello to host %s: it is not known here how it is to be sealed", to)
	}
	if len(b) < sealedSize {
		b = append(b, make([]byte, sealedSize-len(b))...)
	}
	s.said++
	copy(b, sealedMagic)
	binary.BigEndian.PutUint64(b[helloSize:], s.said)
	copy(b[helloSize+8:], seal(s.keys[0], b, s.ring.Run, to, run))
	if counted(h, b) {
		binary.BigEndian.PutUint32(b[sealedSize:], h.Count)
		copy(b[sealedSize+4:], countSeal(s.keys[0], b))
	}
	return b, nil
}

// read reads a hello to this host, if it is one that counts.
func (s *seals) read(b []byte) (h paths.Hello, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h, ok = decodeHello(b); ok {
		run, known := s.ring.Peers[h.From]
		return h, known && run == 0
	}
	if len(b) < sealedSize || string(b[:len(sealedMagic)]) != sealedMagic {
		return h, false
	}
	h, ok = decodeHelloBody(b)
	from, known := s.heard[h.From], false
	if !ok || from == nil {
		return h, false
	}
	number := binary.BigEndian.Uint64(b[helloSize:])
	behind := from.last - number
	if number <= from.last && (behind >= 64 || from.some&(1<<behind) != 0) {
		return h, false
	}
	for _, k := range s.keys {
		known = known || subtle.ConstantTimeCompare(seal(k, b, from.run, s.ring.Self, s.ring.Run), b[helloSize+8:sealedSize]) == 1 &&
			(!counted(h, b) || subtle.ConstantTimeCompare(countSeal(k, b), b[sealedSize+4:sealedSize+countSize]) == 1)
	}
	switch {
	case !known:
		return h, false
	case number > from.last:
		from.some = from.some<<min(number-from.last, 64) | 1
		from.last = number
	default:
		from.some |= 1 << behind
	}
	if counted(h, b) {
		h.Count = binary.BigEndian.Uint32(b[sealedSize:])
	}
	return h, true
}

// seal is that of what a hello has before it, said by a run of its sender to one of a host.
func seal(key, hello []byte, fromRun uint64, to string, toRun uint64) []byte {
	id, _ := hex.DecodeString(to)
	mac := hmac.New(sha256.New, key)
	mac.Write(hello[:helloSize+8])
	mac.Write(binary.BigEndian.AppendUint64(nil, fromRun))
	mac.Write(binary.BigEndian.AppendUint64(nil, toRun))
	mac.Write(id)
	return mac.Sum(nil)[:sealSize]
}

// counted says whether a sealed hello has a count: those of agents that do not know it are as long as it takes to be sealed.
func counted(h paths.Hello, b []byte) bool { return !h.Large && len(b) >= sealedSize+countSize }

// countSeal is that of a hello's count, bound to the hello by the seal before it.
func countSeal(key, hello []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("its count"))
	mac.Write(hello[helloSize+8 : sealedSize+4])
	return mac.Sum(nil)[:countSize-4]
}
