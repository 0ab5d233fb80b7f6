package cluster

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"unique"
)

// opaque is the body of a kind that this agent does not know: a newer agent
// wrote it. It is kept and passed on. So is what says that it is signed, and is not (decodeSigned).
type opaque struct {
	key Key
	raw []byte
}

func (o opaque) Key() Key { return o.key }

func (opaque) speaker() NodeID { return "" }

func (o opaque) validate() error {
	if !o.key.Kind.unread() {
		return fmt.Errorf("body is missing")
	}
	return nil
}

func encodeRecord(r Record) []byte { return appendRecord(nil, &r, r.sig, r.proofs) }

// appendRecord appends the wire form of a record with this signature and these proofs.
func appendRecord(b []byte, r *Record, sig *signature, proofs []Record) []byte {
	w := wireRecord{Kind: r.Key.Kind, Counter: r.Version.Counter, Node: r.Version.Node, Prev: r.Prev, Deleted: r.Deleted, Of: r.of}
	for i := range proofs {
		w.Proofs = append(w.Proofs, encodeRecord(proofs[i]))
	}
	if r.Body == nil {
		w.ID = r.Key.ID
	} else {
		w.Body = r.encodedBody()
		if r.Key.Kind > KindClaim { // agents that do not know the kind cannot read it from the body
			w.ID = r.Key.ID
		}
	}
	if sig != nil {
		w.Sig = sig.sum[:]
	}
	if b == nil {
		b = make([]byte, 0, 192+len(w.Body))
	}
	return w.appendWire(b)
}

// encodedBody returns the body's wire form: as it came, if it came from a newer agent.
func (r *Record) encodedBody() []byte {
	if r.raw != nil {
		return r.raw
	}
	if o, ok := r.Body.(opaque); ok {
		return o.raw
	}
	return must(encoding.Marshal(r.Body))
}

// decodeRecord returns a record that is well formed and within all limits, and
// shares no memory with b but for the body's form (Record.raw).
func decodeRecord(b []byte, keys keyTable) (Record, error) {
	var w wireRecord
	if err := decoding.Unmarshal(b, &w); err != nil {
		return Record{}, malformed(err)
	}
	r := Record{
		Key: Key{w.Kind, w.ID}, Version: Version{w.Counter, NodeID(intern(string(w.Node)))}, Prev: w.Prev, Deleted: w.Deleted, of: w.Of,
	}
	if len(w.Proofs) > maxProofs {
		return Record{}, refuse(r, ErrMalformed, fmt.Errorf("%d proofs", len(w.Proofs)))
	}
	for _, raw := range w.Proofs {
		t, err := decodeRecord(raw, keys)
		if err != nil {
			return Record{}, refuse(r, ErrMalformed, err)
		}
		t.forget() // proofs stay
		r.proofs = append(r.proofs, t)
	}
	if len(w.Sig) > 0 {
		if len(w.Sig) != ed25519.SignatureSize {
			return Record{}, refuse(r, ErrMalformed, fmt.Errorf("signature of %d bytes", len(w.Sig)))
		}
		r.sig = &signature{key: keys[r.Version.Node], sum: [ed25519.SignatureSize]byte(w.Sig)}
	}
	if len(w.Body) > 0 {
		if err := r.decodeBody(w.Body); err != nil {
			return Record{}, refuse(r, ErrMalformed, err)
		}
		if _, unknown := r.Body.(opaque); r.raw == nil && !unknown {
			r.raw = w.Body
		}
		if w.ID != "" && w.ID != r.Key.ID {
			return Record{}, refuse(r, ErrMalformed, errors.New("key and body differ"))
		}
	}
	if err := r.validate(); err != nil {
		return Record{}, refuse(r, ErrMalformed, err)
	}
	return r, nil
}

// intern makes equal texts share their memory: a hundred endpoints have one host.
func intern(s string) string { return unique.Make(s).Value() }

// validate checks everything that does not depend on the state.
func (r Record) validate() error {
	switch {
	case r.Version.Counter == 0 || !r.Version.Node.Valid():
		return errors.New("no version")
	case r.Prev >= r.Version.Counter:
		return fmt.Errorf("previous write %d is not before %d", r.Prev, r.Version.Counter)
	case r.Key.Kind == 0 || r.Key.ID == "" || len(r.Key.ID) > maxID:
		return errors.New("no key")
	case r.Deleted < 0:
		return errors.New("deleted before 1970")
	case r.Deleted != 0 && r.Body != nil:
		return errors.New("deleted, with a body")
	case r.Deleted != 0 && r.Key.Kind == KindClaim:
		return errors.New("a claim cannot be deleted")
	case r.Deleted == 0 && r.Body == nil:
		return errors.New("neither deleted nor a body")
	case r.Deleted == 0 && r.Body.Key() != r.Key:
		return errors.New("key and body differ")
	case r.of != "" && (r.Deleted == 0 || !r.of.Valid() || r.of == r.Version.Node):
		return errors.New("speaks of a host that it has not forgotten")
	case r.Deleted == 0:
		return errors.Join(Validate(r.Body), r.validateTitles())
	}
	return nil
}

func (r Record) validateTitles() error {
	c, isClaim := r.claim()
	for _, t := range r.proofs {
		older, ok := t.claim()
		if !isClaim || !ok || len(t.proofs) > 0 || !c.Dominates(older) {
			return errors.New("a proof is not an older claim inside this one")
		}
	}
	return nil
}

// Equal reports whether two records say the same, to the bit.
func (r Record) Equal(o Record) bool {
	return r.Key == o.Key && r.Version == o.Version && r.Prev == o.Prev && r.Deleted == o.Deleted &&
		bytes.Equal(encodeRecord(r), encodeRecord(o))
}
