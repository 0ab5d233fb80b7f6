package gossip

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/grapevine-net/grapevine/gossip/memnet"
)

var newForm = flag.Bool("new-form", false, "write testdata/wire-N for the version spoken here, which must have none yet")

// forms is one of each thing that travels: its name, its bytes as this program writes
// them in a version, and what reading them gives.
func forms(version uint8) []form {
	at, id := netip.MustParseAddrPort("10.0.0.1:7947"), nodeID{1, 2, 3, 4, 5, 6, 7, 8}
	decodeMeta := func(b []byte) (nodeMeta, error) { return decodeMeta(b, id.String()) }
	decodeEnvelope := func(b []byte) (envelope, error) { return decodeEnvelope(b, versions{protoMin, protoMax}) }
	encodeRequest := func(r request) []byte { return r.encode(version) }
	epoch, stale := uint64(0), []byte{}
	if version >= protoEpochs {
		epoch, stale = 6, []byte{0, 0, 0, 0, 0, 0, 0, 6}
	}
	list := []form{
		formOf("meta", nodeMeta{true, versions{2, version}, id, "alpha", "host1", epoch}, longerMeta, decodeMeta),
		formOf("delta", envelope{version, kindDelta, "alpha", id, []byte("body")}, envelope.encode, decodeEnvelope),
		formOf("no-cluster", envelope{version, kindSum, "", id, []byte("body")}, envelope.encode, decodeEnvelope),
		formOf("summary", summary{bytes.Repeat([]byte{7}, 16), 9, at}, summary.encode, decodeSummary),
		formOf("request", request{5, epoch, 2500 * time.Millisecond, at, "ipam.give", []byte("body")}, encodeRequest, func(b []byte) (request, error) {
			r, err := decodeRequest(version, b)
			r.timeout = r.timeout.Truncate(500 * time.Millisecond) // it is rounded up
			return r, err
		}),
		formOf("response", response{5, statusOK, []byte("body")}, response.encode, decodeResponse),
		formOf("error", response{5, statusError, []byte("no")}, response.encode, decodeResponse),
		formOf("busy", response{5, statusBusy, stale}, response.encode, decodeResponse),
	}
	if version >= protoBeats {
		list = append(list,
			formOf("beat", beat{7, []nodeID{id, {9}}}, beat.encode, decodeBeat),
			formOf("suspicion", suspicion{id, nodeID{9}, 5, true}, suspicion.encode, decodeSuspicion))
	}
	return list
}

// longerMeta is the meta of a later version, whose end this one passes over.
func longerMeta(m nodeMeta) []byte { return append(m.encode(), "more"...) }

type form struct {
	name string
	wire []byte
	read func([]byte) error
}

func formOf[T any](name string, v T, encode func(T) []byte, decode func([]byte) (T, error)) form {
	return form{name, encode(v), func(b []byte) error {
		got, err := decode(b)
		if err == nil && !reflect.DeepEqual(got, v) {
			err = fmt.Errorf("read as %+v, want %+v", got, v)
		}
		return err
	}}
}

// TestWireForms: what programs of this version and of each one that is still spoken
// have written is read, and written again to the bit. A form that was released never
// changes; a new one has a new version and file.
func TestWireForms(t *testing.T) {
	file := func(version uint8) string { return filepath.Join("testdata", fmt.Sprintf("wire-%d", version)) }
	if *newForm {
		var text strings.Builder
		for _, f := range forms(protoMax) {
			fmt.Fprintf(&text, "%s %x\n", f.name, f.wire)
		}
		if err := os.WriteFile(file(protoMax), []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for version := uint8(protoMin); version <= protoMax; version++ {
		text, err := os.ReadFile(file(version))
		if err != nil {
			t.Fatal(err)
		}
		kept := map[string][]byte{}
		for line := range strings.Lines(string(text)) {
			name, digits, _ := strings.Cut(strings.TrimSpace(line), " ")
			if kept[name], err = hex.DecodeString(digits); err != nil {
				t.Fatal(err)
			}
		}
		for _, f := range forms(version) {
			if err := f.read(kept[f.name]); err != nil {
				t.Errorf("%s of version %d: %v", f.name, version, err)
			}
			if !bytes.Equal(f.wire, kept[f.name]) {
				t.Errorf("the wire form of %s has changed: programs that are out there do not understand it; raise protoMax", f.name)
			}
		}
	}
}

// TestVersionsMustMeet: a host is taken if there is a version that it and this one
// speak, an older and a newer one too, and refused by name otherwise.
func TestVersionsMustMeet(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		h := start(t, n, 0, nil)
		for _, c := range []struct {
			min, max uint8
			taken    bool
		}{
			{protoMin, protoMax, true},
			{protoMax, protoMax + 1, true}, // the next release, which speaks this one's as well
			{protoMin - 1, protoMin, true},
			{protoMax + 1, protoMax + 2, false},
			{protoMin - 1, protoMin - 1, false},
		} {
			m := nodeMeta{speaks: versions{c.min, c.max}, cluster: h.ClusterID()}
			other := memberlist.Node{Name: m.node.String(), Meta: m.encode(), Addr: h.addr.Addr().AsSlice(), Port: h.addr.Port()}
			err := (admission{h.Gossip}).NotifyAlive(&other)
			if taken := err == nil; taken != c.taken || !taken && !strings.Contains(err.Error(), "upgrade the older") {
				t.Errorf("versions %d to %d: %v", c.min, c.max, err)
			}
		}
	})
}
