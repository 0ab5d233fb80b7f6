package cluster

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha512"
	"runtime"
	"sync"

	"filippo.io/edwards25519"
)

// job is a signature to verify.
type job struct {
	key     *PublicKey
	sum     *[ed25519.SignatureSize]byte
	message func() []byte
}

// batchSize is how many signatures are verified by one equation: more make it
// hardly cheaper each, and a bad one among them costs them all again.
const batchSize = 128

// verify reports which signatures are bad.
//
// One equation verifies a batch at an eighth of the cost of ed25519.Verify each:
// the sum of z(S·B - k·A - R) over all of them, with random z of 128 bits, is the
// neutral element times 8, or, but once in 2^128, one of them is bad. A batch of
// one is verified by the same equation (and not the stricter one of RFC 8032
// section 5.1.7, which leaves the choice), so that all hosts agree on signatures
// that their own signer made odd.
func verify(jobs []job) (bad []bool) {
	bad = make([]bool, len(jobs))
	if len(jobs) <= batchSize {
		divide(jobs, bad)
		return bad
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for from := 0; from < len(jobs); from += batchSize {
		to := min(from+batchSize, len(jobs))
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			divide(jobs[from:to], bad[from:to])
		})
	}
	wg.Wait()
	return bad
}

// divide finds the bad ones in a batch by halves.
func divide(jobs []job, bad []bool) {
	switch {
	case len(jobs) == 0 || holds(jobs):
	case len(jobs) == 1:
		bad[0] = true
	default:
		half := len(jobs) / 2
		divide(jobs[:half], bad[:half])
		divide(jobs[half:], bad[half:])
	}
}

// holds is the equation over all jobs. Neighbours with one key share a term.
func holds(jobs []job) bool {
	scalars := make([]*edwards25519.Scalar, 0, 2*len(jobs)+1)
	points := make([]*edwards25519.Point, 0, 2*len(jobs)+1)
	base := edwards25519.NewScalar()
	var key *PublicKey
	var keyScalar *edwards25519.Scalar
	for _, j := range jobs {
		r, err := new(edwards25519.Point).SetBytes(j.sum[:32])
		if err != nil {
			return false
		}
		s, err := edwards25519.NewScalar().SetCanonicalBytes(j.sum[32:])
		if err != nil {
			return false
		}
		if key == nil || !bytes.Equal(key[:], j.key[:]) {
			a, err := new(edwards25519.Point).SetBytes(j.key[:])
			if err != nil {
				return false
			}
			key, keyScalar = j.key, edwards25519.NewScalar()
			scalars, points = append(scalars, keyScalar), append(points, a)
		}
		z := weight()
		base.MultiplyAdd(z, s, base)
		keyScalar.MultiplyAdd(z, challenge(j), keyScalar)
		scalars, points = append(scalars, z), append(points, r)
	}
	scalars = append(scalars, base.Negate(base))
	points = append(points, edwards25519.NewGeneratorPoint())
	sum := new(edwards25519.Point).VarTimeMultiScalarMult(scalars, points)
	return sum.MultByCofactor(sum).Equal(edwards25519.NewIdentityPoint()) == 1
}

// challenge is k of RFC 8032 section 5.1.7.
func challenge(j job) *edwards25519.Scalar {
	h := sha512.New()
	h.Write(j.sum[:32])
	h.Write(j.key[:])
	h.Write(j.message())
	k, err := edwards25519.NewScalar().SetUniformBytes(h.Sum(nil))
	return must(k, err)
}

// weight is a random scalar of 128 bits, which is cheaper than one of all bits.
func weight() *edwards25519.Scalar {
	var b [32]byte
	_, _ = rand.Read(b[:16]) // never fails
	z, err := edwards25519.NewScalar().SetCanonicalBytes(b[:])
	return must(z, err)
}
