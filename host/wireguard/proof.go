package wireguard

import (
	"crypto/ed25519"
	"crypto/sha512"
	"math/big"
	"slices"
)

// ProofSize is the size of a proof, bytes.
const ProofSize = ed25519.SignatureSize

// A proof is a signature of a name by a key of WireGuard, as in XEdDSA (Signal, 2016): X25519 and Ed25519 are of one curve, so
// the former's key signs what the latter's check takes.
var (
	field, _ = new(big.Int).SetString("7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffed", 16)
	order, _ = new(big.Int).SetString("1000000000000000000000000000000014def9dea2f79cd65812631a5cf5d3ed", 16)
)

// Prove shows that who has a name has a private key. It is the same each time, so that no key signs two things with one
// number: that would tell the key.
func (k Key) Prove(name string) []byte {
	about, public := whose(name), k.Public().edwards()
	k = k.Clamped()
	seed := sha512.Sum512(append([]byte("grapevine proof "), append(k[:], about...)...))
	once := ed25519.NewKeyFromSeed(seed[:ed25519.SeedSize])
	spread := sha512.Sum512(once.Seed())
	r, a := Key(spread[:32]).Clamped().number(), k.number() // r times the base point is once's public key (RFC 8032, 5.1.5)
	proof := slices.Clone([]byte(once.Public().(ed25519.PublicKey)))
	h := new(big.Int).Mul(challenge(proof, public, about), a)
	// A key of X25519 does not say which of two points it is; the check takes one of the two.
	for _, s := range []*big.Int{new(big.Int).Add(r, h), new(big.Int).Sub(r, h)} {
		if p := append(slices.Clone(proof), little(s.Mod(s, order))...); ed25519.Verify(public, about, p) {
			return p
		}
	}
	panic("one of the two points is the key's")
}

// Proves reports whether who made a proof with a name has the private key of a public one.
func (k Key) Proves(name string, proof []byte) bool {
	return len(proof) == ProofSize && ed25519.Verify(k.edwards(), whose(name), proof)
}

func whose(name string) []byte { return []byte("the WireGuard key of grapevine host " + name) }

// challenge is Ed25519's (RFC 8032, 5.1.6).
func challenge(r []byte, public ed25519.PublicKey, about []byte) *big.Int {
	sum := sha512.Sum512(slices.Concat(r, public, about))
	slices.Reverse(sum[:])
	return new(big.Int).Mod(new(big.Int).SetBytes(sum[:]), order)
}

// edwards is a public key as one of Ed25519 (RFC 7748, 4.1): y = (u-1)/(u+1), and of the two x the even one.
func (k Key) edwards() ed25519.PublicKey {
	k[31] &= 127
	u, one := k.number(), big.NewInt(1)
	below := new(big.Int).Add(u, one)
	if below.ModInverse(below, field) == nil {
		return make(ed25519.PublicKey, ed25519.PublicKeySize) // u is -1, which is no point of the curve
	}
	y := new(big.Int).Sub(u, one)
	return little(y.Mod(y.Mul(y, below), field))
}

func (k Key) number() *big.Int {
	slices.Reverse(k[:])
	return new(big.Int).SetBytes(k[:])
}

// little is a number of 32 bytes, the least first.
func little(n *big.Int) []byte {
	b := n.FillBytes(make([]byte, 32))
	slices.Reverse(b)
	return b
}
