package gossip

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// TestSoften: a death that somebody else tells is a suspicion, wherever it is in a packet; a departure, and all else, stays as it is.
func TestSoften(t *testing.T) {
	text := func(s string) []byte { return append([]byte{0xa0 | byte(len(s))}, s...) }
	death := func(kind byte, host, from string) []byte { // as memberlist writes it
		return bytes.Join([][]byte{{kind, 0x83}, text("Incarnation"), {7}, text("Node"), text(host), text("From"), text(from)}, nil)
	}
	compound := func(parts ...[]byte) []byte {
		b := []byte{compoundPacket, byte(len(parts))}
		for _, p := range parts {
			b = binary.BigEndian.AppendUint16(b, uint16(len(p)))
		}
		return append(b, bytes.Join(parts, nil)...)
	}
	checked := func(b []byte) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{checkedPacket}, crc32.ChecksumIEEE(b)), b...)
	}
	a, b := hostID(0), hostID(1)
	dead, suspect, left := death(deadPacket, a, b), death(suspectPacket, a, b), death(deadPacket, a, a)
	ping := []byte{0, 1, 2, deadPacket}
	broken := checked(dead)
	broken[2]++
	for what, c := range map[string]struct{ plain, want []byte }{
		"a death":                 {dead, suspect},
		"with a checksum":         {checked(dead), checked(suspect)},
		"with another checksum":   {broken, broken},
		"a departure":             {checked(left), checked(left)},
		"a suspicion":             {suspect, suspect},
		"among others":            {checked(compound(ping, dead, left, dead, suspect)), checked(compound(ping, suspect, left, suspect, suspect))},
		"a name of another kind":  {death(deadPacket, "host1", b), death(deadPacket, "host1", b)},
		"with fields of no death": {[]byte{deadPacket, 0x80}, []byte{deadPacket, 0x80}},
		"nothing":                 {nil, nil},
		"a ping":                  {ping, ping},
	} {
		got := bytes.Clone(c.plain)
		if changed := soften(got); !bytes.Equal(got, c.want) || changed == bytes.Equal(c.plain, c.want) {
			t.Errorf("%s: %q, want %q, changed: %v", what, got, c.want, changed)
		}
	}
	whole := compound(ping, dead, left)
	for range 10000 { // no packet is too short
		cut := bytes.Clone(whole[:rand.N(len(whole)+1)])
		if len(cut) > 0 {
			cut[rand.N(len(cut))] = byte(rand.N(256))
		}
		soften(cut)
	}
}
