package cluster

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// GoBy sets the operators' keys by which this host goes: of policies it enforces those alone that these have signed. Without any it
// enforces what any host has written, and nothing that is signed: a signature that nobody here trusts gives no right, or a host in
// others' hands would write what no other one could ever change. It is in each Snapshot from then on, so that nobody who asks for
// policies can forget to ask for it.
func (s *State) GoBy(keys []PublicKey) {
	s.changed()
	s.cur.goesBy = slices.Clone(keys)
}

// Policies are those of a snapshot, and what this host takes them for.
type Policies struct{ s *Snapshot }

// PoliciesOf are the policies of a snapshot.
func PoliciesOf(s *Snapshot) Policies { return Policies{s} }

// Keys are those that GoBy set.
func (all Policies) Keys() []PublicKey { return all.s.goesBy }

func (all Policies) goesBy(signer []byte) bool {
	return slices.ContainsFunc(all.s.goesBy, func(k PublicKey) bool { return bytes.Equal(k[:], signer) })
}

// ListedPolicy is a policy that is in force on this host, or is not, or the deletion of one.
type ListedPolicy struct {
	Policy Policy
	Record Record
	// Signed is what was signed, if anything was.
	Signed *SignedPolicy
	Force  Force
}

// Force is whether a policy is in force, and why not.
type Force uint8

// What may be.
const (
	InForce Force = iota
	// Unsigned: this host goes by keys, and nobody has signed it.
	Unsigned
	// ForeignKey: it is signed with a key that this host does not go by.
	ForeignKey
	// Replaced: the same policy, signed with another key, has a higher serial.
	Replaced
	// Covered: a signed one of its name is in force.
	Covered
	// Ended: it is a signed deletion.
	Ended
)

// All are all policies, signed and not, in the order of their names.
func (all Policies) All() (list []ListedPolicy) {
	s, best := all.s, all.latest()
	for p := range All[Policy](s) {
		rec, _ := s.Record(p.Key())
		one := ListedPolicy{Policy: p, Record: rec}
		if of, signed := best[rec.Key.ID]; signed && of.Text != "" {
			one.Force = Covered
		} else if len(s.goesBy) > 0 {
			one.Force = Unsigned
		}
		list = append(list, one)
	}
	for p := range All[SignedPolicy](s) {
		rec, _ := s.Record(p.Key())
		one := ListedPolicy{Policy: p.Policy(), Record: rec, Signed: &p}
		of := best[one.Policy.Key().ID]
		switch {
		case !all.goesBy(p.Signer):
			one.Force = ForeignKey
		case !bytes.Equal(of.Signer, p.Signer):
			one.Force = Replaced
		case p.Text == "":
			one.Force = Ended
		}
		list = append(list, one)
	}
	slices.SortStableFunc(list, func(a, b ListedPolicy) int { return strings.Compare(a.Policy.Key().ID, b.Policy.Key().ID) })
	return list
}

// latest are the signed policies that count here, deletions as well, by the ID of their Policy: of several keys' the one of the
// highest serial. All keys that a host goes by may change what the others have signed.
func (all Policies) latest() (best map[string]SignedPolicy) {
	for p := range All[SignedPolicy](all.s) {
		id := p.Policy().Key().ID
		old, there := best[id]
		if !all.goesBy(p.Signer) || there && cmp.Or(cmp.Compare(old.Serial, p.Serial), strings.Compare(old.Text, p.Text), bytes.Compare(old.Signer, p.Signer)) > 0 {
			continue
		}
		if best == nil {
			best = map[string]SignedPolicy{}
		}
		best[id] = p
	}
	return best
}

// InForce yields the policies that are in force on this host, and the records that say so, in the order of their names. The
// record of a signed one is as if it had been written without a signature.
func (all Policies) InForce() iter.Seq2[Record, Policy] {
	return func(yield func(Record, Policy) bool) {
		for range All[SignedPolicy](all.s) {
			all.inForce(yield)
			return
		}
		if len(all.s.goesBy) > 0 {
			return
		}
		for p := range All[Policy](all.s) {
			rec, _ := all.s.Record(p.Key())
			if !yield(rec, p) {
				return
			}
		}
	}
}

// Any reports whether there are any, in force here or not: other hosts may go by other keys, and need what this one tells of its containers.
func (all Policies) Any() bool {
	for range All[Policy](all.s) {
		return true
	}
	for range All[SignedPolicy](all.s) {
		return true
	}
	return false
}

func (all Policies) inForce(yield func(Record, Policy) bool) {
	for _, one := range all.All() {
		if one.Force != InForce {
			continue
		}
		rec := one.Record
		if one.Signed != nil {
			rec = Record{Key: one.Policy.Key(), Version: rec.Version, Body: one.Policy}
		}
		if !yield(rec, one.Policy) {
			return
		}
	}
}

// printSize is how much of a key's hash a Node says.
const printSize = 8

// maxPrints bounds what a Node may say, bytes: more than it says.
const maxPrints = 128 * printSize

// Printed reports whether a key is one of those of which a Node says that it goes by them.
func Printed(prints []byte, k PublicKey) bool {
	for p := range slices.Chunk(prints, printSize) {
		if bytes.Equal(p, KeyPrints([]PublicKey{k})) {
			return true
		}
	}
	return false
}

func prints(b []byte) error {
	if len(b) > maxPrints || len(b)%printSize != 0 {
		return fmt.Errorf("%d bytes of operators' keys", len(b))
	}
	return nil
}

// MaxPolicyKeys is by how many keys a host may go: what its Node says of them fits into one broadcast.
const MaxPolicyKeys = 16

// KeyPrints is what a Node says of the keys by which it goes: the same for the same keys in any order.
func KeyPrints(keys []PublicKey) []byte {
	var list [][]byte
	for _, k := range keys {
		sum := sha256.Sum256(k[:])
		list = append(list, sum[:printSize])
	}
	slices.SortFunc(list, bytes.Compare)
	return bytes.Join(slices.CompactFunc(list, bytes.Equal), nil)
}
