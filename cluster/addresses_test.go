package cluster

import (
	"encoding/hex"
	"net/netip"
	"testing"
	"time"
)

// TestAddresses: a host's addresses are written by it alone, and deleted by it or by who has forgotten it. An agent that
// does not know the kind takes the record, and passes it on.
func TestAddresses(t *testing.T) {
	const form = "02a10181a6010a0202037030303030303030303030303030303031040106a2017030303030303030303030303030303031028244c000020150fd000000000000000000000000000001077030303030303030303030303030303031"
	one, other := New(id(1)), New(id(2))
	node := put(t, one, Node{ID: id(1), Name: "host1"})
	rec := put(t, one, Addresses{Host: id(1), List: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fd00::1")}})
	if got := hex.EncodeToString(Encode([]Record{rec})); got != form {
		t.Errorf("wire form %s, want %s", got, form)
	}
	newer := rec // as an agent sees it that does not know its kind
	newer.Key.Kind, newer.Body = 200, opaque{Key{200, rec.Key.ID}, []byte{0xa0}}
	if list, err := Decode(Encode([]Record{newer})); err != nil || len(list) != 1 {
		t.Errorf("an agent that does not know it: %d records, %v", len(list), err)
	}
	if _, err := other.Merge([]Record{node, rec}); err != nil {
		t.Fatal(err)
	}
	forged := rec
	forged.Body = Addresses{Host: id(2)}
	forged.Key = forged.Body.Key()
	if _, err := other.Merge([]Record{forged}); err == nil {
		t.Error("one host says another one's addresses")
	}
	other.Delete(node.Key, time.Unix(50, 0))
	if _, ok := other.Delete(rec.Key, time.Unix(50, 0)); !ok {
		t.Error("who has forgotten a host does not delete its addresses")
	}
	for _, bad := range []netip.Addr{{}, netip.MustParseAddr("::ffff:192.0.2.1"), netip.MustParseAddr("fe80::1%eth0")} {
		if Validate(Addresses{Host: id(1), List: []netip.Addr{bad}}) == nil {
			t.Errorf("%s: taken", bad)
		}
	}
}
