package cluster

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

var newForm = flag.Bool("new-form", false, "write testdata/wire-N for this wire version, which must have none yet")

// TestWireForms: what agents of this wire version and of the one before have
// written is read, verified, and (of this version) written again to the bit. A
// form that was released never changes; a new one has a new version and file.
func TestWireForms(t *testing.T) {
	file := func(version int) string { return filepath.Join("testdata", fmt.Sprintf("wire-%d", version)) }
	if *newForm {
		if err := os.WriteFile(file(wireVersion), Encode(oneOfEach(t)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for version := firstReleased; version <= wireVersion; version++ {
		if version < wireVersion-1 {
			continue
		}
		msg, err := os.ReadFile(file(version))
		if err != nil {
			t.Fatal(err)
		}
		recs, err := Decode(msg)
		if err == nil {
			_, err = Verify(recs)
		}
		if err != nil || len(recs) != len(oneOfEach(t)) {
			t.Errorf("version %d: %d records, %v", version, len(recs), err)
		}
		if version == wireVersion && !slices.Equal(Encode(oneOfEach(t)), msg) {
			t.Error("the wire form has changed: agents that are out there do not understand it; raise wireVersion")
		}
	}
}

// firstReleased is the wire version of the first release.
const firstReleased = 2

// oneOfEach has all kinds of record with all fields, and tombstones.
func oneOfEach(t *testing.T) []Record {
	t.Helper()
	s := signer(t, 1)
	at := netip.MustParseAddr
	for _, b := range []Body{
		Node{
			ID: s.Self(), Name: "host1", VTEP: at("10.0.0.1"), Gossip: netip.MustParseAddrPort("10.0.0.1:7947"),
			VXLANPort: 4789, MTU: 1500, Agent: "v1", Datapath: "kernel",
		},
		Network{Name: "blue", VNID: 7, Options: map[string]string{"a": "b"}, Labels: map[string]string{"c": "d"}, Internal: true, MTU: 1450, Removed: true},
		Subnet{
			Prefix: prefix("10.0.0.0/24"), Network: "blue", Gateway: at("10.0.0.1"), HostBits: 4, Home: s.Self(),
			Range: prefix("10.0.0.128/25"), Aux: map[string]netip.Addr{"printer": at("10.0.0.9")},
		},
		Endpoint{
			ID: "e1", Network: "blue", Addrs: []netip.Addr{at("10.0.0.2"), at("fd00::2")}, MAC: "02:00:00:00:00:01", Host: s.Self(),
			Container: "c1", Name: "web", Aliases: []string{"www"},
		},
		Use{Network: "blue", Host: s.Self()},
		Claim{Block: prefix("::/0"), Owner: s.Self()},
		Network{Name: "red"},
	} {
		put(t, s, b)
	}
	s.Delete(Key{KindNetwork, "red"}, time.Unix(1e9, 0))
	return recordsOf(s)
}
