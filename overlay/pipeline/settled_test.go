package pipeline

import (
	"net/netip"
	"slices"
	"testing"
)

func TestNextGeneration(t *testing.T) {
	for _, c := range []struct {
		now    uint16
		writes []uint16
		want   uint16
	}{
		{1, nil, 2},
		{1, []uint16{1}, 2},
		{1, []uint16{2, 2}, 3},
		{7, []uint16{5}, 8},
		{65535, []uint16{65535}, 1},
		{65535, []uint16{1, 2}, 3},
		{1, []uint16{65535}, 2},
	} {
		flows := []Flow{{Actions: actions(load(regSettled, 1), move(regGeneration.part(), "NXM_OF_ETH_SRC[24..39]"))}}
		for _, n := range c.writes {
			flows = append(flows, Flow{Actions: actions(load(regTracked, 1), load(regGeneration, uint32(n)), goTo(EgressEpoch))})
		}
		if got := NextGeneration(c.now, flows); got != c.want {
			t.Errorf("behind %d, and flows that write %d, comes %d, want %d", c.now, c.writes, got, c.want)
		}
	}
}

// TestOpeningsTouchNothing: openings begin no generation, rules do.
func TestOpeningsTouchNothing(t *testing.T) {
	for text, want := range map[string]bool{
		"reg13=0x2/0x2": true, "ip,reg13=0xa/0xa": true, "reg13=0x3": true, "reg13=0x2/0xa,ct_state=+trk": true,
		"": false, "reg13=0/0x2": false, "reg13=0x4/0x4": false, "reg13=0x8/0xa": false, "reg1=0x2/0x2": false, "conj_id=2": false,
	} {
		if asksFor(text, regJudgeEgress) != want {
			t.Errorf("%q: %t", text, !want)
		}
	}
	a, b := netip.MustParseAddr("10.128.0.2"), netip.MustParseAddr("192.0.2.7")
	in := Input{Tunnel: HeaderBits, Round: Round, Generation: 3, Policy: Policy{
		Guards:  []Guard{{Endpoint: "a", Addrs: []netip.Addr{a}, VNID: 5, Egress: true, EgressEpoch: 1, Named: true}},
		Classes: []Class{{ID: 1, Addrs: []netip.Addr{a}}, {ID: 2, Addrs: []netip.Addr{a.Next()}}},
		Rules:   []PolicyRule{{ID: 7, Direction: Egress, Priority: PriorityNetworkPolicy, Action: Accept, Subjects: []uint32{1}, AnyPort: true, Peers: []uint32{2}, Label: "out", Slot: 1}},
	}}
	compile := func(change func(*Policy)) []Flow {
		t.Helper()
		with := in
		with.Policy.Rules = slices.Clone(in.Policy.Rules)
		change(&with.Policy)
		flows, err := Compile(with)
		if err != nil {
			t.Fatal(err)
		}
		return flows
	}
	none := compile(func(*Policy) {})
	for _, o := range []Opening{
		{Action: Accept, AnyPort: true}, {Action: Drop, Ports: []PortRange{{protoTCP, 80, 90}}}, {Action: Accept, Past: true, AnyPort: true},
		{Action: Pass, Priority: 1, Ports: []PortRange{{protoSCTP, 80, 90}, {protoUDP, 0, 65535}}}, {Action: Reject, AnyPort: true},
	} {
		if o.Rule, o.From, o.To, o.Priority = 7, a, b, o.Priority+PriorityNetworkPolicy; o.Action != Accept && o.Action != Pass {
			o.Priority--
		}
		for _, c := range []Changes{Diff(none, compile(func(p *Policy) { p.Openings = []Opening{o} }))} {
			if !c.TouchPolicy() {
				t.Errorf("%+v of a guard without names begins no generation", o)
			}
		}
		o.Named = true
		opened := compile(func(p *Policy) { p.Openings = []Opening{o} })
		for _, c := range []Changes{Diff(none, opened), Diff(opened, none)} {
			if c.Empty() || c.TouchPolicy() {
				t.Errorf("%+v begins a generation: %q", o, c.Lines())
			}
		}
	}
	for what, change := range map[string]func(*Policy){
		"a peer":   func(p *Policy) { p.Rules[0].Peers = []uint32{1, 2} },
		"subjects": func(p *Policy) { p.Rules[0].Subjects = []uint32{1, 2} },
		"a slot":   func(p *Policy) { p.Rules[0].Slot = 2 },
		"an ID":    func(p *Policy) { p.Rules[0].ID = 8 },
		"an epoch": func(p *Policy) { p.Guards = slices.Clone(p.Guards); p.Guards[0].EgressEpoch = 2 },
		"no names": func(p *Policy) { p.Guards = slices.Clone(p.Guards); p.Guards[0].Named = false },
		"no rule":  func(p *Policy) { p.Rules = nil },
	} {
		if flows := compile(change); !Diff(none, flows).TouchPolicy() {
			t.Errorf("%s begins no generation", what)
		}
	}
}
