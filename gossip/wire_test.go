package gossip

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestWireRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "body")
		var id nodeID
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "id"))
		label := rapid.StringN(0, 16, maxLabel)
		e := envelope{protoMax, kind(rapid.IntRange(1, 6).Draw(t, "kind")), label.Draw(t, "cluster"), id, body}
		if got, err := decodeEnvelope(e.encode(), versions{protoMin, protoMax}); err != nil || got.kind != e.kind || got.cluster != e.cluster || got.from != id || !bytes.Equal(got.body, body) {
			t.Fatalf("envelope %+v: %+v, %v", e, got, err)
		}
		r := request{rapid.Uint64().Draw(t, "n"), rapid.Uint64().Draw(t, "epoch"), time.Second, netip.MustParseAddrPort("[fd00::1]:7"), label.Draw(t, "method"), body}
		if got, err := decodeRequest(protoMax, r.encode(protoMax)); err != nil || got.id != r.id || got.epoch != r.epoch || got.timeout < r.timeout || got.reply != r.reply || got.method != r.method || !bytes.Equal(got.body, body) {
			t.Fatalf("request %+v: %+v, %v", r, got, err)
		}
		p := response{r.id, statusError, body}
		if got, err := decodeResponse(p.encode()); err != nil || got.id != p.id || got.status != p.status || !bytes.Equal(got.body, body) {
			t.Fatalf("response %+v: %+v, %v", p, got, err)
		}
		m := nodeMeta{true, versions{1, protoMax}, id, e.cluster, r.method, r.id}
		if got, err := decodeMeta(append(m.encode(), body...), id.String()); err != nil || got.cluster != m.cluster || got.name != m.name || !got.leaving || got.speaks != m.speaks || got.epoch != m.epoch {
			t.Fatalf("meta %+v: %+v, %v", m, got, err)
		}
		s := summary{bytes.Repeat([]byte{7}, 16), r.id, r.reply}
		if got, err := decodeSummary(s.encode()); err != nil || got.members != s.members || got.addr != s.addr || !bytes.Equal(got.state, s.state) {
			t.Fatalf("summary %+v: %+v, %v", s, got, err)
		}
	})
}

// The largest meta fits into what memberlist carries.
func TestMetaFits(t *testing.T) {
	long := strings.Repeat("x", maxLabel)
	m := nodeMeta{speaks: versions{protoMin, protoMax}, cluster: long, name: long}
	if n := len(m.encode()); n > 512 {
		t.Errorf("%d bytes, memberlist takes 512", n)
	}
}

// A delta of MaxBroadcast bytes fits into a gossip packet of 1400 bytes with all
// that memberlist and the envelope add.
func TestBroadcastFits(t *testing.T) {
	e := envelope{protoMax, kindDelta, strings.Repeat("x", maxLabel), nodeID{}, make([]byte, MaxBroadcast)}
	const memberlist = 2 + 2 + 1 + 29 + 5 // compound header and entry, type, AES-GCM, CRC
	if n := len(e.encode()) + memberlist; n > 1400 {
		t.Errorf("%d bytes", n)
	}
}

// Nothing that comes from the network makes a decoder panic, or claim more than
// there is; what is accepted is the same after another round.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{protoMax, byte(kindDelta), 0})
	f.Add(envelope{protoMax, kindRequest, "alpha", nodeID{1}, request{1, 2, time.Second, netip.MustParseAddrPort("10.0.0.1:7947"), "m", []byte("b")}.encode(protoMax)}.encode())
	f.Add(envelope{protoMax, kindResponse, "alpha", nodeID{1}, response{1, statusBusy, nil}.encode()}.encode())
	f.Add(envelope{protoMax, kindSum, "alpha", nodeID{1}, summary{make([]byte, 16), 1, netip.MustParseAddrPort("10.0.0.1:7947")}.encode()}.encode())
	f.Add(envelope{protoMax, kindBeat, "alpha", nodeID{1}, beat{7, []nodeID{{2}, {3}}}.encode()}.encode())
	f.Add(envelope{protoMax, kindDoubt, "alpha", nodeID{1}, suspicion{nodeID{1}, nodeID{2}, 3, true}.encode()}.encode())
	f.Add(nodeMeta{speaks: versions{1, 1}, cluster: "alpha", name: "n"}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = decodeMeta(b, nodeID{}.String())
		e, err := decodeEnvelope(b, versions{protoMin, protoMax})
		if err != nil {
			return
		}
		if !bytes.Equal(e.encode(), b) {
			t.Errorf("%x decodes to %+v", b, e)
		}
		_, _ = decodeRequest(e.version, e.body)
		_, _ = decodeResponse(e.body)
		_, _ = decodeSummary(e.body)
		_, _ = decodeBeat(e.body)
		_, _ = decodeSuspicion(e.body)
	})
}

func TestKeys(t *testing.T) {
	for size := range 40 {
		if err := CheckKey(make([]byte, size)); (err == nil) != (size == 16 || size == 24 || size == 32) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if bytes.Equal(GenerateKey(), GenerateKey()) {
		t.Error("two keys are equal")
	}
}

func TestConfigIsChecked(t *testing.T) {
	good := Config{Node: hostID(0), Keys: [][]byte{testKey}, Log: quiet()}
	for want, change := range map[string]func(*Config){
		"node ID":                      func(c *Config) { c.Node = "ABC" },
		"no gossip key":                func(c *Config) { c.Keys = nil },
		"key 2: gossip key of 3 bytes": func(c *Config) { c.Keys = append(c.Keys, []byte("abc")) },
		"cluster ID of 65":             func(c *Config) { c.ClusterID = strings.Repeat("x", 65) },
		"listen on":                    func(c *Config) { c.Bind = netip.MustParseAddrPort("192.0.2.1:7947") },
		"listen on [::]":               func(c *Config) { c.Bind = netip.MustParseAddrPort("[::]:0") },
	} {
		c := good
		c.Keys = append([][]byte(nil), good.Keys...)
		change(&c)
		g, err := New(c, newToy())
		if err == nil {
			_ = g.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
