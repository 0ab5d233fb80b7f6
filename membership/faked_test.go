package membership

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"math"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/replica"
)

// memberlist's words, which nobody signs, as who has the gossip key can make them: a type, a
// MessagePack map of few fields, AES-GCM with a nonce.
const (
	wordAlive = 4
	wordDead  = 5
)

type field struct {
	name  string
	value any // uint32, string or []byte
}

func swimWord(kind byte, fields ...field) []byte {
	raw := func(b []byte, s string) []byte {
		return append(binary.BigEndian.AppendUint16(append(b, 0xda), uint16(len(s))), s...)
	}
	b := []byte{kind, 0x80 | byte(len(fields))}
	for _, f := range fields {
		b = raw(b, f.name)
		switch v := f.value.(type) {
		case uint32:
			b = binary.BigEndian.AppendUint32(append(b, 0xce), v)
		case string:
			b = raw(b, v)
		case []byte:
			b = raw(b, string(v))
		}
	}
	block, err := aes.NewCipher(testKey[0])
	if err != nil {
		panic(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	nonce := make([]byte, gcm.NonceSize())
	rand.Read(nonce)
	return gcm.Seal(append([]byte{1}, nonce...), nonce, b, nil)
}

// lies numbers the addresses of who lies.
var lies atomic.Uint32

// fakeLeave tells hosts in memberlist's words that another one says good-bye, which it cannot
// deny: the words have the last number that there is.
func fakeLeave(t *testing.T, of *testHost, to ...*testHost) {
	t.Helper()
	id, err := hex.DecodeString(of.id.Node)
	if err != nil {
		t.Fatal(err)
	}
	str := func(s string) string { return string(rune(len(s))) + s }
	meta := append([]byte{1, 1, 2, 3}, id...) // it is leaving
	meta = append(meta, str(of.gossip.ClusterID())+str(of.cfg.Name)+"epochepo"...)
	at := of.gossip.Addr()
	words := [][]byte{
		swimWord(wordAlive, field{"Incarnation", uint32(math.MaxUint32)}, field{"Node", of.id.Node}, field{"Addr", at.Addr().AsSlice()},
			field{"Port", uint32(at.Port())}, field{"Meta", meta}, field{"Vsn", []byte{1, 5, 2, 0, 0, 0}}),
		swimWord(wordDead, field{"Incarnation", uint32(math.MaxUint32)}, field{"Node", of.id.Node}, field{"From", of.id.Node}),
	}
	liar, err := network(t).Listen(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(lies.Add(1))}), 1))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = liar.Shutdown() }()
	for _, h := range to {
		eventually(t, "the host is taken for dead", func() bool {
			for _, w := range words {
				if _, err := liar.WriteTo(w, h.gossip.Addr().String()); err != nil {
					t.Fatal(err)
				}
			}
			return !h.Answers(of.Self())
		})
	}
}

// TestFakedDeath: who has the gossip key can have all hosts but one believe that this one is
// dead, or has left. Nobody who is asked to forget it then does, nor believes who has.
func TestFakedDeath(t *testing.T) { virtual(t, testFakedDeath) }

func testFakedDeath(t *testing.T) {
	owner := newHost(t, 1, t.TempDir()).start()
	other := newHost(t, 2, t.TempDir(), 1).start()
	thief := newHost(t, 3, t.TempDir(), 1).start()
	for _, h := range []*testHost{owner, other, thief} {
		eventually(t, "all know the ring and each other", func() bool {
			known := 0
			for range cluster.All[cluster.Node](h.replica.Snapshot()) {
				known++
			}
			return h.replica.Settled() && h.replica.Snapshot().Ring().OwnsAll(owner.Self(), clusterRange) && len(h.gossip.Alive()) == 2 && known == 3
		})
	}
	fakeLeave(t, owner, other, thief)
	if m, _ := other.gossip.Member(owner.id.Node); m.State == gossip.Left {
		t.Error("it is believed that the host has left")
	}
	for _, h := range []*testHost{thief, other} {
		_, err := h.Forgetter.Forget(t.Context(), api.ForgetRequest{Hosts: []string{owner.id.Node}})
		if err == nil || !strings.Contains(err.Error(), "is alive") {
			t.Errorf("%s forgets a host that is alive: %v", h.cfg.Name, err)
		}
	}
	// The thief does without being promised anything.
	if _, err := thief.replica.Update(func(tx *replica.Tx) error {
		tx.Delete(cluster.Node{ID: owner.Self()}.Key())
		_ = tx.Put(cluster.Claim{Block: clusterRange, Owner: thief.Self()})
		return tx.Put(cluster.Network{Name: "said"})
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other one hears of it", func() bool {
		_, ok := cluster.Get[cluster.Network](other.replica.Snapshot(), "said")
		return ok
	})
	fakeLeave(t, owner, other)
	for range 100 {
		snap := other.replica.Snapshot()
		if !snap.Ring().OwnsAll(owner.Self(), clusterRange) || snap.Tombstone(cluster.Node{ID: owner.Self()}.Key()) {
			t.Fatal("the other one believes the thief")
		}
		time.Sleep(50 * time.Millisecond)
	}
}
