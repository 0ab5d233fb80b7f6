package cluster

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/sshkey"
)

// SignedPolicy is a Policy that an operator has signed, on a machine that need not be a host. Any host may write what it got
// from there, and none can change it. Of one key's policies of one name that of the highest serial holds, whichever record is
// the latest (signedOrder): so a tombstone, an older text or what nobody signed takes none away.
type SignedPolicy struct {
	Scope   string `cbor:"1,keyasint,omitempty"` // this and the next two as of a Policy
	Network string `cbor:"2,keyasint,omitempty"`
	Name    string `cbor:"3,keyasint,omitempty"`
	// Signer is the operator's public key (Ed25519), 32 bytes.
	Signer []byte `cbor:"4,keyasint,omitempty"`
	// Serial is higher than all that its signer knew of the policy, whoever had signed these.
	Serial uint64 `cbor:"5,keyasint,omitempty"`
	Text   string `cbor:"6,keyasint,omitempty"` // "": there is no such policy any more
	// Over are the policies over which it was made, the newest first, at most MaxBase. Of others its signer did not know.
	Over []SignedEdit `cbor:"7,keyasint,omitempty"`
	// Signature is that of ssh-keygen over Message.
	Signature []byte `cbor:"8,keyasint,omitempty"`
	// Author is the name of the host that was given it, for people. Nobody signs that.
	Author string `cbor:"9,keyasint,omitempty"`
}

// SignedEdit names what was signed before.
type SignedEdit struct {
	_      struct{} `cbor:",toarray"`
	Serial uint64
	Sum    []byte // the first 8 bytes of the SHA-256 of the text
}

// SigningPurpose is what ssh-keygen calls the namespace of a signature: one that was made for something else is none.
const SigningPurpose = "grapevine-policy"

// MaxSerial leaves room behind all serials that anybody gets to by counting.
const MaxSerial = 1 << 62

// MaxSignedText is what the text of a signed policy may take, bytes.
const MaxSignedText = maxBody - 2048

// Key names the record: a key of its own for each signer, so that nobody writes over what another one has signed.
func (p SignedPolicy) Key() Key {
	return Key{KindSignedPolicy, p.Policy().Key().ID + "/" + base64.RawURLEncoding.EncodeToString(p.Signer)}
}

func (SignedPolicy) speaker() NodeID { return "" }

// Policy is what it says, as one that is not signed.
func (p SignedPolicy) Policy() Policy {
	return Policy{Scope: p.Scope, Network: p.Network, Name: p.Name, Text: p.Text, Author: p.Author}
}

// Message is what is signed, for people to read as well.
func (p SignedPolicy) Message() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "grapevine policy\nscope %s\nnetwork %s\nname %s\nserial %d\n", p.Scope, p.Network, p.Name, p.Serial)
	for _, e := range p.Over {
		fmt.Fprintf(&b, "over %d %x\n", e.Serial, e.Sum)
	}
	fmt.Fprintf(&b, "\n%s", p.Text)
	return b.Bytes()
}

// Edit names it, for those that are made over it.
func (p SignedPolicy) Edit() SignedEdit {
	sum := sha256.Sum256([]byte(p.Text))
	return SignedEdit{Serial: p.Serial, Sum: sum[:8]}
}

// Before are the edits over which one is made that follows p.
func (p SignedPolicy) Before() []SignedEdit {
	list := append([]SignedEdit{p.Edit()}, p.Over...)
	return list[:min(len(list), MaxBase)]
}

func (p SignedPolicy) validate() error {
	like := p.Policy()
	like.Text = cmp.Or(p.Text, "deleted")
	err := like.validate()
	switch {
	case len(p.Signer) != ed25519.PublicKeySize:
		return errors.Join(err, fmt.Errorf("its key has %d bytes", len(p.Signer)))
	case len(p.Key().ID) > maxID:
		err = errors.Join(err, fmt.Errorf("its network and its name have %d bytes, at most %d if it is signed", len(p.Network)+len(p.Name), maxID-(len(p.Key().ID)-len(p.Network)-len(p.Name))))
	case p.Serial == 0 || p.Serial > MaxSerial:
		err = errors.Join(err, fmt.Errorf("its serial is %d", p.Serial))
	case len(p.Text) > MaxSignedText:
		err = errors.Join(err, fmt.Errorf("its text has %d bytes, at most %d if it is signed", len(p.Text), MaxSignedText))
	case len(p.Over) > MaxBase:
		err = errors.Join(err, fmt.Errorf("%d edits before it, at most %d", len(p.Over), MaxBase))
	case len(p.Signature) != ed25519.SignatureSize:
		err = errors.Join(err, fmt.Errorf("its signature has %d bytes", len(p.Signature)))
	}
	for _, e := range p.Over {
		if len(e.Sum) != 8 || e.Serial >= p.Serial {
			err = errors.Join(err, fmt.Errorf("serial %d is not before it", e.Serial))
		}
	}
	if err != nil {
		return err
	}
	key, sum := PublicKey(p.Signer), [ed25519.SignatureSize]byte(p.Signature)
	if verify([]job{{&key, &sum, func() []byte { return sshkey.Signed(SigningPurpose, p.Message()) }}})[0] {
		return errors.New("its signature is not that of its key")
	}
	return nil
}

// decodeSigned reads a body under a key. What is not signed by the key is kept and passed on as what an agent keeps that knows no
// such records, and nobody asks for it: if it were refused, an older host that has it could tell the others nothing any more.
func decodeSigned(k Key, raw []byte) (Body, error) {
	p, err := decodeAs[SignedPolicy](k, raw)
	if err != nil || p.Key() != k || p.validate() != nil {
		return opaque{k, bytes.Clone(raw)}, nil
	}
	return p, nil
}

// signedOrder says which of two records of one key of this kind stays: 0, that of the higher version. What is signed stays before all
// else, tombstones as well. Of two that are signed the higher serial does, and of one serial, which two machines may have given at once,
// the later text in the order of bytes: everywhere the same, whoever writes it again, and no deletion before a text.
func signedOrder(a, b *Record) int {
	x, isX := a.Body.(SignedPolicy)
	y, isY := b.Body.(SignedPolicy)
	switch {
	case isX && isY:
		return cmp.Or(cmp.Compare(x.Serial, y.Serial), strings.Compare(x.Text, y.Text))
	case isX:
		return 1
	case isY:
		return -1
	}
	return 0
}

// lostSigned is lost for signed policies.
func lostSigned(winner, loser *Record) (l Lost, is bool) {
	w, live := winner.Body.(SignedPolicy)
	old, was := loser.Body.(SignedPolicy)
	if !live || !was || !w.Misses(old) {
		return l, false
	}
	return Lost{Edit: *kept(loser), Winner: *kept(winner)}, true
}

// Misses reports whether its signer did not know of another text of the policy, in whose place it is.
func (p SignedPolicy) Misses(old SignedPolicy) bool {
	edit := old.Edit()
	switch {
	case p.Serial == old.Serial && p.Text == old.Text:
		return false
	case len(p.Over) == MaxBase && old.Serial < p.Over[MaxBase-1].Serial:
		return false // too long ago to be known
	}
	return !slices.ContainsFunc(p.Over, func(e SignedEdit) bool { return e.Serial == edit.Serial && bytes.Equal(e.Sum, edit.Sum) })
}
