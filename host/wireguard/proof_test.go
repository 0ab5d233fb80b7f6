package wireguard

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// TestProof: who has a key's private half proves it for its own name, and nobody proves it for another's.
func TestProof(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(what string) Key { return Key(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, what)) }
		name := rapid.StringN(1, 20, -1).Draw(t, "name")
		private, another := draw("private"), draw("another")
		key := private.Public()
		proof := private.Prove(name)
		if !key.Proves(name, proof) {
			t.Fatal("a proof is not taken")
		}
		if !bytes.Equal(proof, private.Clamped().Prove(name)) {
			t.Fatal("a key proves the same in two ways")
		}
		if key.Proves(name+"x", proof) {
			t.Error("a proof is another host's, too")
		}
		if another.Public() != key && (another.Public().Proves(name, proof) || key.Proves(name, another.Prove(name))) {
			t.Error("a proof is of another key, too")
		}
		proof[rapid.IntRange(0, ProofSize-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if key.Proves(name, proof) || key.Proves(name, proof[:ProofSize-1]) || key.Proves(name, nil) {
			t.Error("what is no proof is taken")
		}
	})
	for _, odd := range []Key{{}, {1}, Key(bytes.Repeat([]byte{255}, 32)), Key(little(field)), minusOne()} {
		odd.Proves("a", make([]byte, ProofSize)) // no key, and nobody can speak by one, but who names it is answered
	}
}

func minusOne() Key {
	k := Key(little(field))
	k[0]--
	return k
}
