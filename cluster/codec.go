package cluster

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/fxamacker/cbor/v2"
)

// wireVersion is the first byte of every message: the format of all that
// follows. It rises when older agents could not understand, or would have to
// refuse, what newer ones write; new fields and new kinds need no new version.
//
//	1: never released: records without signatures
//	2: signed records
const wireVersion = 2

// maxMessage is the largest message accepted, bytes.
const maxMessage = 16 << 20

// maxItems limits the records of one message.
const maxItems = 1 << 16

// maxMarks limits the writers of a digest: all hosts that ever were, since who has gone stays
// in it. Twelve megabytes are less than a call may have.
const maxMarks = 1 << 20

var (
	encoding = must(cbor.CoreDetEncOptions().UserBufferEncMode())
	decoding = must(cbor.DecOptions{
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		IndefLength:      cbor.IndefLengthForbidden,
		TagsMd:           cbor.TagsForbidden,
		MaxNestedLevels:  8,
		MaxArrayElements: maxItems,
		MaxMapPairs:      1024,
	}.DecMode())
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // the options above are constants
	}
	return v
}

// Message is what one agent sends to another, or to all: records, or a part of
// an answer to a digest. The wire form is a version byte and a deterministic CBOR
// map (RFC 8949 section 4.2.1).
type Message struct {
	Records []Record
	// Sync, not zero, says that the message is one of an answer to a digest; the
	// messages of one answer have the same Sync and are numbered by Part from 0.
	Sync uint64
	Part uint32
	// Complete, in the last message of an answer, is the digest of the sender: who
	// has merged all the parts has all that it covers.
	Complete *Digest
}

// part is the wire form of a part of a message. It is read without a copy.
type part []byte

// MarshalCBOR implements cbor.Marshaler.
func (p part) MarshalCBOR() ([]byte, error) { return p, nil }

// UnmarshalCBOR implements cbor.Unmarshaler. Whoever decodes owns b and does not change it.
func (p *part) UnmarshalCBOR(b []byte) error {
	*p = b
	return nil
}

type wireMessage struct {
	Records  []part `cbor:"1,keyasint,omitempty"`
	Sync     uint64 `cbor:"2,keyasint,omitempty"`
	Part     uint32 `cbor:"3,keyasint,omitempty"`
	Last     bool   `cbor:"4,keyasint,omitempty"`
	Complete []byte `cbor:"5,keyasint,omitempty"`
	// Keys are those of the writers of Records, in the order of their bytes.
	Keys [][]byte `cbor:"6,keyasint,omitempty"`
}

type wireRecord struct {
	Kind    Kind   `cbor:"1,keyasint"`
	Counter uint64 `cbor:"2,keyasint"`
	Node    NodeID `cbor:"3,keyasint"`
	Prev    uint64 `cbor:"4,keyasint,omitempty"`
	Deleted int64  `cbor:"5,keyasint,omitempty"`
	Body    part   `cbor:"6,keyasint,omitempty"`
	// ID only where no body says it to every agent: of tombstones, and of kinds after KindClaim.
	ID string `cbor:"7,keyasint,omitempty"`
	// Of and Proofs: Record.of and Record.proofs. A proof has no proofs of its own.
	Of     NodeID `cbor:"9,keyasint,omitempty"`
	Proofs []part `cbor:"10,keyasint,omitempty"`
	// Sig is the writer's signature over the record without it.
	Sig []byte `cbor:"8,keyasint,omitempty"`
}

// Encode returns the wire form of records that came from State.Put,
// State.Delete, Merge or Decode.
func Encode(recs []Record) []byte { return Message{Records: recs}.Encode() }

// Decode reads what Encode wrote, and keeps b, which is not to be changed. It returns the good records even if some are
// refused: then the error holds a RefusedError for each (see Refusals).
func Decode(b []byte) ([]Record, error) {
	m, err := DecodeMessage(b)
	return m.Records, err
}

// Encode returns the wire form of a message.
func (m Message) Encode() []byte {
	w := wireMessage{Sync: m.Sync, Part: m.Part, Last: m.Complete != nil}
	keys := keyTable{}
	for i := range m.Records {
		keys.add(&m.Records[i])
		w.Records = append(w.Records, encodeRecord(m.Records[i]))
	}
	w.Keys = keys.list()
	if m.Complete != nil {
		w.Complete = packDigest(*m.Complete)
	}
	return w.encode()
}

func (w wireMessage) encode() []byte {
	size := 64 + len(w.Complete) + 40*len(w.Keys)
	for _, r := range w.Records {
		size += len(r)
	}
	return w.appendWire(append(make([]byte, 0, size), wireVersion))
}

// DecodeMessage reads what Message.Encode wrote, and keeps b, which is not to be changed. Records that are malformed are
// left out; the error then holds a RefusedError for each, and the rest of the
// message is good, except that Complete is nil. Any other error means that
// nothing could be read.
func DecodeMessage(b []byte) (Message, error) {
	w, err := openMessage(b)
	if err != nil {
		return Message{}, err
	}
	m := Message{Sync: w.Sync, Part: w.Part}
	keys, err := readKeys(w.Keys)
	if err != nil {
		return Message{}, err
	}
	recs, errs := make([]Record, len(w.Records)), make([]error, len(w.Records))
	share(len(recs), func(i int) { recs[i], errs[i] = decodeRecord(w.Records[i], keys) })
	var bad []error
	m.Records = recs[:0]
	for i, err := range errs {
		if err != nil {
			bad = append(bad, err)
		} else {
			m.Records = append(m.Records, recs[i])
		}
	}
	if w.Last && len(bad) == 0 {
		d, err := unpackDigest(w.Complete)
		if err != nil {
			return Message{}, err
		}
		m.Complete = &d
	}
	return m, errors.Join(bad...)
}

// share calls f for each number below n, on all processors if they are many.
func share(n int, f func(i int)) {
	const many = 64
	workers := min(runtime.GOMAXPROCS(0), n/many)
	if workers < 2 {
		for i := range n {
			f(i)
		}
		return
	}
	var wg sync.WaitGroup
	var next atomic.Int64
	for range workers {
		wg.Go(func() {
			for {
				to := int(next.Add(many))
				for i := to - many; i < min(to, n); i++ {
					f(i)
				}
				if to >= n {
					return
				}
			}
		})
	}
	wg.Wait()
}

func openMessage(b []byte) (w wireMessage, err error) {
	switch {
	case len(b) > maxMessage:
		return w, malformed(fmt.Errorf("message of %d bytes, at most %d", len(b), maxMessage))
	case len(b) == 0:
		return w, malformed(errors.New("empty message"))
	case b[0] > wireVersion:
		return w, &RefusedError{Reason: ErrVersion, Detail: fmt.Errorf("version %d, this agent knows %d: upgrade it", b[0], wireVersion)}
	case b[0] < wireVersion:
		return w, malformed(errors.New("no version byte"))
	}
	if err := decoding.Unmarshal(b[1:], &w); err != nil {
		return wireMessage{}, malformed(err)
	}
	return w, nil
}

func malformed(detail error) *RefusedError {
	return &RefusedError{Reason: ErrMalformed, Detail: detail}
}
