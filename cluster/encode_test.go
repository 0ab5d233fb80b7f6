package cluster

import (
	"bytes"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"pgregory.net/rapid"
)

// TestWrittenByHand: what is written by hand is what the library writes, to the bit.
func TestWrittenByHand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Uint64Range(0, 300), rapid.Uint64())
		text := rapid.OneOf(rapid.SampledFrom([]string{"", "x"}), rapid.StringN(0, 300, 300))
		raw := rapid.Custom(func(t *rapid.T) []byte { return must(encoding.Marshal(text.Draw(t, "raw"))) })
		parts := rapid.Custom(func(t *rapid.T) (list []part) {
			for _, p := range rapid.SliceOfN(raw, 0, 30).Draw(t, "parts") {
				list = append(list, p)
			}
			return list
		})
		some := rapid.SliceOfN(rapid.Byte(), 0, 70)
		r := wireRecord{
			Kind: Kind(rapid.Byte().Draw(t, "kind")), Counter: number.Draw(t, "counter"), Node: NodeID(text.Draw(t, "node")), Prev: number.Draw(t, "prev"),
			Deleted: rapid.OneOf(rapid.Int64Range(-300, 300), rapid.Int64()).Draw(t, "deleted"), ID: text.Draw(t, "ID"), Of: NodeID(text.Draw(t, "of")),
			Sig: some.Draw(t, "sig"), Proofs: parts.Draw(t, "proofs"),
		}
		if rapid.Bool().Draw(t, "body") {
			r.Body = raw.Draw(t, "body")
		}
		whole := struct {
			Kind    Kind              `cbor:"1,keyasint"`
			Counter uint64            `cbor:"2,keyasint"`
			Node    NodeID            `cbor:"3,keyasint"`
			Prev    uint64            `cbor:"4,keyasint,omitempty"`
			Deleted int64             `cbor:"5,keyasint,omitempty"`
			Body    cbor.RawMessage   `cbor:"6,keyasint,omitempty"`
			ID      string            `cbor:"7,keyasint,omitempty"`
			Of      NodeID            `cbor:"9,keyasint,omitempty"`
			Proofs  []cbor.RawMessage `cbor:"10,keyasint,omitempty"`
			Sig     []byte            `cbor:"8,keyasint,omitempty"`
		}{r.Kind, r.Counter, r.Node, r.Prev, r.Deleted, cbor.RawMessage(r.Body), r.ID, r.Of, nil, r.Sig}
		for _, p := range r.Proofs {
			whole.Proofs = append(whole.Proofs, cbor.RawMessage(p))
		}
		if got, want := r.appendWire(nil), must(encoding.Marshal(whole)); !bytes.Equal(got, want) {
			t.Fatalf("record\n%x, want\n%x", got, want)
		}
		m := wireMessage{
			Records: parts.Draw(t, "records"), Sync: number.Draw(t, "sync"), Part: rapid.Uint32().Draw(t, "part"), Last: rapid.Bool().Draw(t, "last"),
			Complete: some.Draw(t, "complete"), Keys: rapid.SliceOfN(some, 0, 3).Draw(t, "keys"),
		}
		if got, want := m.encode()[1:], must(encoding.Marshal(m)); !bytes.Equal(got, want) {
			t.Fatalf("message\n%x, want\n%x", got, want)
		}
	})
}
