package cluster

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestEgressForm: the wire form of an egress and its holder is what agents of the first release with them write.
func TestEgressForm(t *testing.T) {
	const (
		form   = "02a10181a5010c020103703030303030303030303030303030303106a601646d61696c028164626c7565038144c0000219048265686f73743265686f73743305f50665686f73743107646d61696c"
		holder = "02a10181a6010d0203037030303030303030303030303030303031040206a301646d61696c027030303030303030303030303030303032037130323a30303a30613a30313a30303a303507646d61696c"
	)
	s := New(id(1))
	rec := put(t, s, Egress{
		Name: "mail", Networks: []string{"blue"}, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.25")}, Gateways: []string{"host2", "host3"}, Quorum: true, Author: "host1",
	})
	if got := hex.EncodeToString(Encode([]Record{rec})); got != form {
		t.Errorf("wire form %s, want %s", got, form)
	}
	if _, ok := s.Delete(rec.Key, time.Unix(50, 0)); !ok {
		t.Fatal("not deleted")
	}
	if s.Expire([]Key{rec.Key}); !s.Snapshot().Tombstone(rec.Key) {
		t.Error("its tombstone has expired: a host that was away would bring it back")
	}
	rec = put(t, s, EgressHolder{Egress: "mail", Host: id(2), MAC: "02:00:0a:01:00:05"})
	if got := hex.EncodeToString(Encode([]Record{rec})); got != holder {
		t.Errorf("wire form of its holder %s, want %s", got, holder)
	}
}

func TestEgressLimits(t *testing.T) {
	at := netip.MustParseAddr
	good := Egress{Name: "mail", Networks: []string{"blue"}, Addrs: []netip.Addr{at("192.0.2.25"), at("2001:db8::25")}}
	if err := Validate(good); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(*Egress){
		"a slash": func(e *Egress) { e.Name = "a/b" }, "no network": func(e *Egress) { e.Networks = nil }, "no address": func(e *Egress) { e.Addrs = nil },
		"multicast": func(e *Egress) { e.Addrs = []netip.Addr{at("224.0.0.1")} }, "two of a family": func(e *Egress) { e.Addrs = []netip.Addr{at("192.0.2.25"), at("192.0.2.26")} },
		"an empty address": func(e *Egress) { e.Addrs = []netip.Addr{{}} }, "an empty gateway": func(e *Egress) { e.Gateways = []string{""} },
		"65 gateways": func(e *Egress) { e.Gateways = make([]string, 65) },
	} {
		bad := good
		if change(&bad); Validate(bad) == nil {
			t.Errorf("%s: taken", what)
		}
	}
	if Validate(EgressHolder{Egress: "mail", Host: "x"}) == nil || Validate(EgressHolder{Egress: "mail", MAC: "x"}) == nil || Validate(EgressHolder{}) == nil {
		t.Error("a holder that is no host, has no MAC, or holds nothing is taken")
	}
}

// TestEngineLabels: what a Node says of its engine's labels is in order, has values, and is bounded.
func TestEngineLabels(t *testing.T) {
	if got := EngineLabels([]string{"role=edge", "ssd", "=x", "rack=7", "role=edge", "empty="}); !slices.Equal(got, []string{"empty=", "rack=7", "role=edge"}) {
		t.Errorf("%q", got)
	}
	var many []string
	for i := range 10_000 {
		many = append(many, fmt.Sprintf("label%05d=%s", i, strings.Repeat("x", 40)))
	}
	n := Node{ID: "00000000000000aa", Labels: EngineLabels(many)}
	if len(n.Labels) == 0 || Validate(n) != nil {
		t.Errorf("%d labels of 10,000: %v", len(n.Labels), Validate(n))
	}
	if n.Labels = many; Validate(n) == nil {
		t.Error("10,000 labels are valid")
	}
}
