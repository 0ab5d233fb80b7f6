package gossip

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"net/netip"
	"testing"

	"github.com/grapevine-net/grapevine/gossip/memnet"
)

// newTestScreen is the screen of a host that does not run.
func newTestScreen(t testing.TB) *screen {
	t.Helper()
	tr, err := memnet.New(1).Listen(netip.MustParseAddrPort("10.0.0.1:7947"))
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(Config{Node: hostID(0), Bind: hostAddr(0), Keys: [][]byte{testKey}, ClusterID: "alpha", Transport: tr, Log: quiet()}, newToy())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return newScreen(g.door)
}

// Of a flood of packets that no key opens memberlist sees a few, which it complains of, and
// nothing is kept of the others.
func TestScreen(t *testing.T) {
	s := newTestScreen(t)
	b := bytes.Repeat([]byte{1}, 1200)
	shown := 0
	for range 10 * maxComplaints {
		if _, is := s.pass(b); is {
			shown++
		}
	}
	if shown < maxComplaints || shown > 2*maxComplaints { // a second may have begun meanwhile
		t.Errorf("%d packets were handed on", shown)
	}
	if n := testing.AllocsPerRun(100, func() { s.pass(b) }); n > 1 { // the list of keys
		t.Errorf("a packet costs %v allocations", n)
	}
}

// BenchmarkScreen is what a packet of 1200 bytes costs that no key opens.
func BenchmarkScreen(b *testing.B) {
	s := newTestScreen(b)
	p := bytes.Repeat([]byte{1}, 1200)
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	for b.Loop() {
		s.pass(p)
	}
}

// TestBeatsAreHeardAtOnce: a beat, as this program seals it and as memberlist did for older ones, is heard without
// memberlist, and once; all else is for memberlist.
func TestBeatsAreHeardAtOnce(t *testing.T) {
	s := newTestScreen(t)
	var heard [][]byte
	s.door.beats = func(b []byte, _ bool) { heard = append(heard, bytes.Clone(b)) }
	from, err := parseNode(hostID(1))
	if err != nil {
		t.Fatal(err)
	}
	said := func(k kind, body []byte) []byte {
		return append([]byte{userPacket}, envelope{protoMax, k, "alpha", from, body}.encode()...)
	}
	checked := func(b []byte) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{checkedPacket}, crc32.ChecksumIEEE(b)), b...)
	}
	beats := said(kindBeat, beat{number: 7}.encode())
	broken := checked(beats)
	broken[2]++
	for _, c := range []struct {
		what  string
		plain []byte
		beat  bool
	}{
		{"a beat", beats, true},
		{"a beat with a checksum", checked(beats), true},
		{"a beat with another checksum", broken, false},
		{"a summary", said(kindSum, nil), false},
		{"a ping", []byte{0, 1, byte(kindBeat)}, false},
		{"nothing", nil, false},
		{"little", []byte{userPacket, 3}, false},
	} {
		heard = nil
		_, passed := s.pass(s.door.opener.seal(testKey, c.plain))
		if passed == c.beat || len(heard) != map[bool]int{true: 1}[c.beat] {
			t.Errorf("%s is for memberlist: %v, and was heard %d times", c.what, passed, len(heard))
		}
		if c.beat && !bytes.Equal(heard[0], beats[1:]) {
			t.Errorf("%s: heard %x, said %x", c.what, heard[0], beats[1:])
		}
	}
	if _, passed := s.pass(s.door.opener.seal(bytes.Repeat([]byte{7}, 32), beats)); !passed || len(heard) > 0 {
		t.Error("a beat with another key is heard")
	}
}
