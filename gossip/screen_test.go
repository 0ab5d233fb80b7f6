package gossip

import (
	"bytes"
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
		if s.pass(b) {
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
