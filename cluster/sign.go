package cluster

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
)

// PublicKey is the Ed25519 key (RFC 8032) that a host's records are verified with.
type PublicKey [ed25519.PublicKeySize]byte

// Signature is a writer's word for a record. Key is nil if the message that
// brought the record did not have the writer's key.
type signature struct {
	key *PublicKey
	sum [ed25519.SignatureSize]byte
}

// HostID returns the ID of the host that has a key: the first 8 bytes of the
// SHA-256 of it. So an ID stands for one key, whoever is asked and in whatever
// order messages come; another key is another host.
func HostID(key PublicKey) NodeID {
	sum := sha256.Sum256(append([]byte("grapevine host\x00"), key[:]...))
	return NodeID(hex.EncodeToString(sum[:8]))
}

// Public returns the public half of a host's key.
func Public(key ed25519.PrivateKey) (p PublicKey) {
	copy(p[:], key[ed25519.PrivateKeySize-ed25519.PublicKeySize:])
	return p
}

// SignWith makes the State, and its clones, sign what it writes. The key must be
// the host's. Without a call to SignWith records have no signature: for a State
// whose records nobody else is to believe.
func (s *State) SignWith(key ed25519.PrivateKey) error {
	if len(key) != ed25519.PrivateKeySize {
		return fmt.Errorf("key of %d bytes, want %d", len(key), ed25519.PrivateKeySize)
	}
	public := Public(key)
	if id := HostID(public); id != s.self {
		return fmt.Errorf("the key is that of host %s, not of %s", id, s.self)
	}
	s.signing = signing{key, &public}
	return nil
}

// Sign signs what is no record, with the host's key, for Signed. What it is for is to be in
// the bytes.
func Sign(key ed25519.PrivateKey, b []byte) []byte {
	public := Public(key)
	return append(public[:], ed25519.Sign(key, word(b))...)
}

// Signed reports whether bytes are signed by a host.
func Signed(by NodeID, b, signature []byte) bool {
	if len(signature) != ed25519.PublicKeySize+ed25519.SignatureSize {
		return false
	}
	key := PublicKey(signature[:ed25519.PublicKeySize])
	return HostID(key) == by && ed25519.Verify(key[:], word(b), signature[ed25519.PublicKeySize:])
}

// word keeps other bytes apart from records.
func word(b []byte) []byte { return append([]byte("grapevine word\x00"), b...) }

// signing signs what this host writes (SignWith); without a key nothing does.
type signing struct {
	key    ed25519.PrivateKey
	public *PublicKey
}

// sign signs an own record, if this host has a key.
func (s signing) sign(r *Record) {
	if s.key == nil {
		return
	}
	r.sig = &signature{key: s.public}
	copy(r.sig.sum[:], ed25519.Sign(s.key, signedBytes(r)))
}

// signedBytes are what a signature is over: the record's wire form without it, and
// without proofs. These have signatures of their own, and a claim loses its own ones when
// it becomes the proof of another.
func signedBytes(r *Record) []byte {
	const purpose = "grapevine record\x00"
	return appendRecord(append(make([]byte, 0, 512), purpose...), r, nil, nil)
}

// Verify returns the records that are signed by their writers. The error holds a
// RefusedError (ErrForged) for each of the others. It takes about 20 µs a record
// and goes about all processors; docs/design/decisions.md has the figures.
func Verify(recs []Record) (good []Record, err error) {
	var errs []error
	jobs := make([]job, 0, len(recs))
	signed := make([]int, 0, len(recs))
	var checked *Record // the last one: neighbours mostly have one writer
	for i := range recs {
		r := &recs[i]
		if checked != nil && r.sig != nil && r.sig.key == checked.sig.key && r.Version.Node == checked.Version.Node && len(r.proofs) == 0 {
			signed, jobs = append(signed, i), append(jobs, r.job())
			continue
		}
		if err := r.unsigned(); err != nil {
			errs = append(errs, refuse(*r, ErrForged, err))
			continue
		}
		checked = r
		for j := range r.proofs {
			signed, jobs = append(signed, i), append(jobs, r.proofs[j].job())
		}
		signed, jobs = append(signed, i), append(jobs, r.job())
	}
	forged := map[int]bool{}
	bad := verify(jobs)
	if len(errs) == 0 && !slices.Contains(bad, true) {
		return recs, nil
	}
	for n, i := range signed {
		forged[i] = forged[i] || bad[n]
		switch last := n == len(signed)-1 || signed[n+1] != i; {
		case last && forged[i]:
			errs = append(errs, refuse(recs[i], ErrForged, errors.New("the signature is not that of the writer")))
		case last:
			good = append(good, recs[i])
		}
	}
	return good, errors.Join(errs...)
}

func (r *Record) job() job {
	return job{r.sig.key, &r.sig.sum, func() []byte { return signedBytes(r) }}
}

// unsigned says why a record cannot be verified.
func (r *Record) unsigned() error {
	switch {
	case r.sig == nil:
		return errors.New("it has no signature")
	case r.sig.key == nil:
		return errors.New("the writer's key did not come with it")
	case HostID(*r.sig.key) != r.Version.Node:
		return errors.New("the key is not that of the writer")
	}
	for i := range r.proofs {
		if err := r.proofs[i].unsigned(); err != nil {
			return fmt.Errorf("proof of %s: %w", r.proofs[i].Key, err)
		}
	}
	return nil
}

// pinned returns the key that the records of a writer here are signed with, nil
// if there are none.
func (s *State) pinned(writer NodeID) (key *PublicKey) {
	s.cur.byWriter.AscendGreaterOrEqual(s.at(Version{Node: writer}), func(r *Record) bool {
		if r.Version.Node == writer && r.sig != nil {
			key = r.sig.key
		}
		return false
	})
	return key
}

// rekeyed reports whether r is signed with another key than its writer's earlier
// records: two keys with one ID, of which the first seen stays.
func (s *State) rekeyed(r *Record) bool {
	if r.sig == nil || r.sig.key == nil {
		return false
	}
	key := s.pinned(r.Version.Node)
	return key != nil && *key != *r.sig.key
}

// intern makes the records of one writer share its key in memory.
func (s *State) intern(r *Record) {
	if r.sig == nil {
		return
	}
	if key := s.pinned(r.Version.Node); key != nil && key != r.sig.key {
		r.sig = &signature{key: key, sum: r.sig.sum}
	}
}
