package gossip

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"io"
	"sync"
)

// What memberlist sends over a stream is one message, encrypted:
//
//	10 | length 4 | version 1 (0 or 1) | nonce 12 | ciphertext | tag 16
//
// and in a packet it is the part from the version on. With it are authenticated the first five
// bytes; of a packet nothing.
const (
	frameEncrypted = 10 // memberlist's encryptMsg
	frameHead      = 5
	sealedHead     = 13
	sealedLeast    = sealedHead + 16
	// frameStep is what is kept of a message at first; twice as much each time it is full.
	frameStep = 4 << 10
	// courtesy is how much of a message that no key opens is shown to memberlist, which
	// counts it and tells the sender: as much as it takes to be one.
	courtesy = 64
)

// readFrame reads a message, of at most limit bytes behind its head, and asks grow before it
// keeps more of it. What is no encrypted message is returned as soon as that is known, as is
// what is larger than limit, with whole false: memberlist has its words for each.
func readFrame(r io.Reader, limit int, grow func(n int) bool) (frame []byte, whole bool, err error) {
	frame = make([]byte, frameHead, frameHead+courtesy)
	if _, err := io.ReadFull(r, frame[:1]); err != nil {
		return nil, false, err
	}
	if frame[0] != frameEncrypted {
		return frame[:1], false, nil
	}
	if _, err := io.ReadFull(r, frame[1:]); err != nil {
		return nil, false, io.ErrUnexpectedEOF
	}
	size := int(binary.BigEndian.Uint32(frame[1:]))
	if size > limit {
		return frame, false, nil
	}
	for have := frameHead; have < frameHead+size; have = len(frame) {
		next := min(max(2*have, frameStep), frameHead+size)
		if !grow(next - have) {
			return nil, false, errCrowded
		}
		longer := make([]byte, next)
		copy(longer, frame)
		frame = longer
		if _, err := io.ReadFull(r, frame[have:]); err != nil {
			return nil, false, io.ErrUnexpectedEOF
		}
	}
	return frame, true, nil
}

// opener tells whether one of some keys opens a message. Its methods may be called at once.
type opener struct {
	mu    sync.Mutex
	aeads map[string]cipher.AEAD // by key
	large sync.Mutex             // one large message at a time is opened: it takes as much again
}

func newOpener() *opener { return &opener{aeads: map[string]cipher.AEAD{}} }

// aead returns the cipher of a key, nil if it is none.
func (o *opener) aead(key []byte) cipher.AEAD {
	o.mu.Lock()
	defer o.mu.Unlock()
	if a := o.aeads[string(key)]; a != nil {
		return a
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil
	}
	a, err := cipher.NewGCM(block)
	if err != nil {
		return nil
	}
	if len(o.aeads) > 64 {
		clear(o.aeads)
	}
	o.aeads[string(key)] = a
	return a
}

// opens reports whether a key opens what is sealed. scratch is room that it may use.
func (o *opener) opens(keys [][]byte, sealed, with, scratch []byte) bool {
	_, ok := o.open(keys, sealed, with, scratch)
	return ok
}

// open returns what is sealed, in scratch if that is large enough, and whether a key opens it.
func (o *opener) open(keys [][]byte, sealed, with, scratch []byte) (plain []byte, ok bool) {
	if len(sealed) < sealedLeast || sealed[0] > 1 {
		return nil, false
	}
	for _, k := range keys {
		a := o.aead(k)
		if a == nil {
			continue
		}
		if plain, err := a.Open(scratch[:0], sealed[1:sealedHead], sealed[sealedHead:], with); err == nil {
			return plain, true
		}
	}
	return nil, false
}

// seal seals a packet as memberlist does: version 1 | nonce | what is sealed.
func (o *opener) seal(key, plain []byte) []byte {
	a := o.aead(key)
	if a == nil {
		return nil
	}
	b := make([]byte, sealedHead, sealedHead+len(plain)+a.Overhead())
	b[0] = 1
	_, _ = rand.Read(b[1:]) // never fails
	return a.Seal(b, b[1:sealedHead], plain, nil)
}

// opensFrame is opens of a stream's message.
func (o *opener) opensFrame(keys [][]byte, frame []byte) bool {
	if len(frame) > 1<<16 {
		o.large.Lock()
		defer o.large.Unlock()
	}
	return o.opens(keys, frame[frameHead:], frame[:frameHead], nil)
}

// stub makes of a message that no key opens a short one of its kind.
func stub(frame []byte) []byte {
	short := bytes.Clone(frame[:min(len(frame), frameHead+courtesy)])
	binary.BigEndian.PutUint32(short[1:], uint32(len(short)-frameHead))
	return short
}
