package overlay

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// TestPolicyInTheSwitch: of drawn rules, the switch gives back the flows that it was given,
// and does with each packet of a connection what the rules say: with its first one, one in
// either direction of one that passed (at the rules' epochs or at others), an ICMP error,
// and TCP in the middle of a connection.
func TestPolicyInTheSwitch(t *testing.T) {
	b, port := sceneSwitch(t, pipeline.HeaderBits)
	w := tracer{port: port, compiler: &pipeline.Compiler{}}
	w.dial(t, b)
	have, _, err := w.compiler.Compile(scene(pipeline.HeaderBits, port))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		in := scene(pipeline.HeaderBits, port)
		in.Policy = policies().Draw(t, "policy")
		_, changes, err := w.compiler.Compile(in)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.ApplyBundle(t.Context(), changes.Lines()); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			p := policyPackets(in.Policy).Draw(t, "packet")
			want := p.judge(in)
			got, trace := w.judge(t, p)
			seen[want.why]++
			if got != want.effect && !p.eitherPasses(in.Policy) {
				t.Fatalf("%+v: the switch does %q, want %q (%s)\n%s", p, got, want.effect, want.why, trace)
			}
		}
	})
	t.Log(seen)
	for _, why := range []string{"not tracked", "nothing to judge", "settled", "judged", "denied", "rejected", "midstream", "turned", "host", "related", "unsure", "undecided"} {
		if seen[why] == 0 {
			t.Errorf("no packet was %s: the test shows little", why)
		}
	}
	want, _, err := w.compiler.Compile(policyFor(port))
	if err != nil {
		t.Fatal(err)
	}
	dump, err := b.DumpFlows(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range dump {
		have = append(have, pipelineFlow(f))
	}
	if err := b.ApplyBundle(t.Context(), pipeline.Diff(have[len(have)-len(dump):], want).Lines()); err != nil {
		t.Fatal(err)
	}
	if dump, err = b.DumpFlows(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []pipeline.Flow
	for _, f := range dump {
		got = append(got, pipelineFlow(f))
	}
	pipeline.Sort(got)
	if d := gocmp.Diff(want, got); d != "" {
		t.Fatalf("the switch gives flows back in another spelling:\n%s", d)
	}
}

// policyFor has rules of every kind.
func policyFor(port map[string]uint32) pipeline.Input {
	in := scene(pipeline.HeaderBits, port)
	in.Ports[0].Rejects = true
	blocks := []netip.Prefix{prefix("0.0.0.0/0"), prefix("198.51.100.0/24"), prefix("::/0"), prefix("2001:db8::/32")}
	// All but ::1: of the blocks that are left the switch prints some as IPv4.
	for bits := range 128 {
		b := [16]byte{}
		b[bits/8] = 0x80 >> (bits % 8)
		if bits == 127 {
			b[15] = 0
		}
		blocks = append(blocks, netip.PrefixFrom(netip.AddrFrom16(b), bits+1))
	}
	blocks = append(blocks, prefix("::ffff:192.0.2.0/120"), prefix("::192.0.2.7/128"))
	ports := []pipeline.PortRange{{Proto: 6, From: 80, To: 90}, {Proto: 6, To: 65535}, {Proto: 17, From: 53, To: 53}, {Proto: 132, From: 1, To: 65535}, {Proto: 1, From: 8, To: 0}, {Proto: 58, From: 65535, To: 65535}}
	in.Policy = pipeline.Policy{
		Guards: []pipeline.Guard{{Endpoint: "a", Addrs: in.Ports[0].Addrs, LinkLocal: in.Ports[0].LinkLocal, VNID: 5, Ingress: true, Egress: true, Young: true, IngressEpoch: 1, EgressEpoch: 65535}},
		Classes: []pipeline.Class{
			{ID: 1, Addrs: in.Ports[0].Addrs}, {ID: 4000000000, Addrs: []netip.Addr{addr("10.128.2.9")}, Ranges: []netip.Prefix{prefix("10.128.2.0/24"), prefix("fd00:1::2:0/112")}},
		},
	}
	for i, d := range []pipeline.Direction{pipeline.Ingress, pipeline.Egress} {
		for j, r := range []pipeline.PolicyRule{
			{Action: pipeline.Pass, Priority: 19999, AnyPeer: true, AnyPort: true},
			{Action: pipeline.Accept, Priority: 10000, Peers: []uint32{4000000000}, Blocks: blocks, Ports: ports},
			{Action: pipeline.Accept, Priority: 10000, AnyPeer: true, Ports: ports},
			{Action: pipeline.Reject, Priority: 1, Blocks: blocks, AnyPort: true},
			{Action: pipeline.Drop, AnyPeer: true, AnyPort: true},
		} {
			r.ID, r.Direction, r.Subjects = uint32(4000000000+10*i+j), d, []uint32{1, 4000000000}
			in.Policy.Rules = append(in.Policy.Rules, r)
		}
	}
	for _, past := range []bool{false, true} {
		in.Policy.Openings = append(in.Policy.Openings,
			pipeline.Opening{Rule: 4000000011, Priority: 10000, Action: pipeline.Accept, From: addr("10.128.0.7"), To: addr("198.51.100.9"), Past: past, Ports: ports[:4]},
			pipeline.Opening{Rule: 4000000012, Priority: 19999, Action: pipeline.Pass, From: addr("fd00:1::7"), To: addr("2001:db8::9"), Past: past, AnyPort: true})
	}
	return in
}

// ends of connections: local ones, others, and where packets of the others come from.
var (
	policyEnds = []netip.Addr{
		addr("10.128.0.7"), addr("10.130.0.7"), addr("10.128.2.9"), addr("10.128.2.10"), addr("198.51.100.1"), addr("10.128.0.1"),
		addr("fd00:1::7"), addr("fd00:1::2:9"), addr("2001:db8::1"), addr("fd00:1::1"),
	}
	policyLocal = map[netip.Addr]string{addr("10.128.0.7"): "a", addr("fd00:1::7"): "a", addr("10.130.0.7"): "g"}
)

// policies draws rules of few classes, in which much overlaps.
func policies() *rapid.Generator[pipeline.Policy] {
	return rapid.Custom(func(t *rapid.T) (p pipeline.Policy) {
		number := func(label string, least, most int) int { return rapid.IntRange(least, most).Draw(t, label) }
		class := func(label string) uint32 { return uint32(number(label, 1, 3)) }
		classes := map[uint32]*pipeline.Class{}
		for id := range uint32(3) {
			classes[id+1] = &pipeline.Class{ID: id + 1}
		}
		put := func(label string, addrs ...string) {
			c := classes[class(label)]
			for _, a := range addrs {
				c.Addrs = append(c.Addrs, addr(a))
			}
		}
		put("class of a", "10.128.0.7", "fd00:1::7")
		put("class of g", "10.130.0.7")
		if number("known", 0, 2) > 0 {
			put("class of others", "10.128.2.9", "fd00:1::2:9")
		}
		if number("range", 0, 2) == 0 {
			c := classes[class("class of the range")]
			c.Ranges = append(c.Ranges, prefix("10.128.2.0/24"))
		}
		for id := range uint32(3) {
			p.Classes = append(p.Classes, *classes[id+1])
		}
		for _, g := range []pipeline.Guard{
			{Endpoint: "a", Addrs: []netip.Addr{addr("10.128.0.7"), addr("fd00:1::7")}},
			{Endpoint: "g", Addrs: []netip.Addr{addr("10.130.0.7")}},
		} {
			g.Ingress, g.Egress = number("ingress", 0, 2) > 0, number("egress", 0, 2) > 0
			g.Young = number("young", 0, 1) == 0
			g.IngressEpoch, g.EgressEpoch = uint16(number("epoch", 1, 2)), uint16(number("epoch", 1, 2))
			p.Guards = append(p.Guards, g)
		}
		action := map[string]pipeline.Action{}
		for i := range number("rules", 0, 8) {
			r := pipeline.PolicyRule{ID: uint32(7 + i), Direction: pipeline.Direction(number("direction", 1, 2)), Label: fmt.Sprint("rule ", i)}
			r.Priority = rapid.SampledFrom([]int{0, 5, 10000, 10000, 10000, 10001, 10002}).Draw(t, "priority")
			r.Action = pipeline.Action(number("action", 1, 3))
			if r.Priority > pipeline.PriorityNetworkPolicy {
				r.Action = pipeline.Action(number("action", 1, 4))
			}
			if r.Priority == pipeline.PriorityNetworkPolicy {
				r.Action = pipeline.Accept
			}
			if at := fmt.Sprint(r.Direction, r.Priority); action[at] == 0 {
				action[at] = r.Action
			} else {
				r.Action = action[at]
			}
			r.Subjects = []uint32{class("subject"), class("subject")}
			if r.AnyPeer = number("any peer", 0, 3) == 0; !r.AnyPeer {
				r.Peers = []uint32{class("peer"), class("peer")}[:number("peers", 0, 2)]
				r.Blocks = rapid.SliceOfN(rapid.SampledFrom([]netip.Prefix{
					prefix("0.0.0.0/0"), prefix("198.51.100.0/24"), prefix("10.128.2.8/30"), prefix("::/0"), prefix("2001:db8::/32"),
				}), 0, 2).Draw(t, "blocks")
			}
			if r.AnyPort = number("any port", 0, 2) == 0; !r.AnyPort {
				r.Ports = rapid.SliceOfN(rapid.SampledFrom([]pipeline.PortRange{
					{Proto: 6, From: 80, To: 80}, {Proto: 6, From: 70, To: 90}, {Proto: 17, From: 0, To: 65535}, {Proto: 6, From: 0, To: 65535},
					{Proto: 132, From: 80, To: 443}, {Proto: 1, From: 8, To: 0}, {Proto: 1, From: 65535, To: 65535}, {Proto: 58, From: 128, To: 65535},
				}), 1, 3).Draw(t, "ports")
			}
			p.Rules = append(p.Rules, r)
		}
		taken := map[string]bool{}
		for range number("openings", 0, 6) {
			o := pipeline.Opening{Rule: uint32(100 + len(p.Openings)), Priority: rapid.SampledFrom([]int{5, 10000, 10002}).Draw(t, "priority"), Past: number("past", 0, 2) == 0}
			pair := rapid.SampledFrom([][2]string{{"10.128.0.7", "198.51.100.1"}, {"10.130.0.7", "198.51.100.1"}, {"fd00:1::7", "2001:db8::1"}, {"10.128.0.7", "10.128.2.10"}}).Draw(t, "pair")
			o.From, o.To = addr(pair[0]), addr(pair[1])
			if o.AnyPort = number("any port", 0, 1) == 0; !o.AnyPort {
				o.Ports = rapid.SampledFrom([][]pipeline.PortRange{
					{{Proto: 6, From: 80, To: 80}}, {{Proto: 6, From: 70, To: 90}, {Proto: 17, From: 53, To: 53}}, {{Proto: 132, From: 80, To: 443}},
				}).Draw(t, "ports")
			}
			at, place := fmt.Sprint(o.Priority, o.From, o.To, o.Past), fmt.Sprint(pipeline.Egress, o.Priority)
			if o.Action = action[place]; o.Action == 0 { // of one priority is one action
				o.Action = rapid.SampledFrom([]pipeline.Action{pipeline.Accept, pipeline.Drop, pipeline.Pass}[:2+number("may pass", 0, 1)]).Draw(t, "action")
				if o.Action == pipeline.Pass && o.Priority <= pipeline.PriorityNetworkPolicy {
					o.Action = pipeline.Accept
				}
				action[place] = o.Action
			}
			if taken[at] {
				continue
			}
			taken[at] = true
			p.Openings = append(p.Openings, o)
		}
		return p
	})
}

// policyPacket is a packet of a connection between Src and Dst, to Port or, of ICMP, a type.
type policyPacket struct {
	Src, Dst netip.Addr
	Proto    uint8
	From, To uint16
	State    string // new, established, related, midstream
	Answer   bool   // the packet goes from Dst to Src
	Mark     uint32 // of the connection
	// Undecided: nobody knows who called. The packet is of what is established.
	Undecided bool
}

func policyPackets(p pipeline.Policy) *rapid.Generator[policyPacket] {
	return rapid.Custom(func(t *rapid.T) policyPacket {
		pick := func(label string, of ...uint16) uint16 { return rapid.SampledFrom(of).Draw(t, label) }
		between := func(src, dst netip.Addr) bool {
			_, here := policyLocal[src]
			_, there := policyLocal[dst]
			return src != dst && src.Is4() == dst.Is4() && (here || there)
		}
		c := policyPacket{Src: rapid.SampledFrom(policyEnds).Draw(t, "from")}
		c.Dst = rapid.SampledFrom(slices.DeleteFunc(slices.Clone(policyEnds), func(a netip.Addr) bool { return !between(c.Src, a) })).Draw(t, "to")
		c.Proto = uint8(pick("protocol", 6, 6, 17, 17, 132, 1))
		c.From, c.To = pick("source port", 40000, 40000, 1000), pick("port", 80, 80, 75, 53, 443, 50051)
		c.State = rapid.SampledFrom([]string{"new", "new", "new", "established", "established", "related", "midstream", "midstream"}).Draw(t, "state")
		if c.Proto == 1 {
			c.From, c.To = pick("type", 8, 13), 0
			if c.Src.Is6() {
				c.Proto, c.From = 58, 128
			}
		}
		if c.State == "midstream" {
			c.Proto, c.To = 6, pick("port", 80, 80, 75, 53, 443, 50051)
			c.From = pick("source port", 40000, 40000, 1000)
		}
		c.Answer = c.State != "new" && rapid.Bool().Draw(t, "answer")
		if c.Undecided = c.State == "established" && (c.Proto == 17 || c.Proto == 132) && rapid.IntRange(0, 3).Draw(t, "undecided") == 0; c.Undecided {
			return c
		}
		if c.State == "established" || c.State == "related" {
			for shift, d := range map[int]netip.Addr{0: c.Src, 16: c.Dst} {
				for _, g := range p.Guards {
					if policyLocal[d] == g.Endpoint && rapid.IntRange(0, 2).Draw(t, "of its epoch") > 0 {
						c.Mark |= uint32(cmp.Or(map[int]uint16{0: g.EgressEpoch, 16: g.IngressEpoch}[shift])) << shift
					}
				}
			}
		}
		return c
	})
}

// effect is what becomes of a packet, and why.
type effect struct{ effect, why string }

// judge is what the seam says (package pipeline, policy.go), word by word.
func (c policyPacket) judge(in pipeline.Input) effect {
	p := in.Policy
	guard := func(a netip.Addr) pipeline.Guard {
		for _, g := range p.Guards {
			if slices.Contains(g.Addrs, a) {
				return g
			}
		}
		return pipeline.Guard{}
	}
	out, into := guard(c.Src), guard(c.Dst)
	if !out.Egress && !out.Ingress && !into.Egress && !into.Ingress {
		return effect{"passes", "not tracked"}
	}
	answers := false // by the packet's ports
	if c.State == "midstream" {
		packet := [2]uint16{c.From, c.To}
		if c.Answer {
			packet = [2]uint16{c.To, c.From}
		}
		switch {
		case (packet[0] < 32768) == (packet[1] < 32768):
			return effect{"dropped", "midstream"}
		case (packet[0] < 32768) != c.Answer: // the ports say another direction than it was
			c.Src, c.Dst, c.From, c.To = c.Dst, c.Src, c.To, c.From
			out, into = into, out
			c.Answer = !c.Answer
		}
		answers = c.Answer
		if c.Answer && (into.Egress || out.Ingress) { // as an answer it would pass these rules by
			c.Src, c.Dst, c.From, c.To = c.Dst, c.Src, c.To, c.From
			out, into, c.Answer = into, out, false
		}
	}
	unsure := c.State == "new" && (out.Young || into.Young) && c.Proto != 6 && c.Proto != 1 && c.Proto != 58 && (c.From < 32768 || c.To >= 32768)
	if c.Undecided && c.Answer { // each end's packets are judged as a call of its own
		c.Src, c.Dst, c.From, c.To = c.Dst, c.Src, c.To, c.From
		out, into = into, out
	}
	judged, mark, why := false, uint32(0), "nothing to judge"
	var action pipeline.Action
	if out.Egress {
		mark |= uint32(out.EgressEpoch)
	}
	if into.Ingress {
		mark |= uint32(into.IngressEpoch) << 16
	}
	known := c.State == "established" || c.State == "related"
	ask := func(d pipeline.Direction, epoch uint16, marked uint32) bool {
		if known && uint32(epoch) == marked&0xffff {
			why = "settled"
			return true
		}
		judged, why = true, "judged"
		action = c.first(p, d)
		if d == pipeline.Ingress && (c.Src == addr("10.128.0.1") || c.Src == addr("fd00:1::1")) {
			action, why = pipeline.Accept, "host"
		}
		if d == pipeline.Egress && (c.Dst == addr("10.128.0.1") || c.Dst == addr("fd00:1::1")) && c.To == 53 && (c.Proto == 6 || c.Proto == 17) {
			action, why = pipeline.Accept, "host"
		}
		return action == pipeline.Accept
	}
	if out.Egress && !ask(pipeline.Egress, out.EgressEpoch, c.Mark) || into.Ingress && !ask(pipeline.Ingress, into.IngressEpoch, c.Mark>>16) {
		if answered := c.Proto != 1 && c.Proto != 58 || c.From == 8 || c.From == 128; action == pipeline.Reject && answered && c.State != "related" && !answers {
			return effect{"rejected", "rejected"}
		}
		return effect{"dropped", "denied"}
	}
	switch {
	case c.State == "related":
		return effect{"passes", "related"}
	case c.State == "midstream" && answers:
		return effect{"passes", "turned"}
	case c.Undecided:
		return effect{"passes", "undecided"}
	case unsure && (!judged || c.From < 32768 && c.To >= 32768):
		return effect{"passes, and is undecided", "unsure"}
	case known && !judged:
		return effect{"passes", why}
	}
	return effect{fmt.Sprintf("passes, and is noted with %#x", mark), why}
}

// eitherPasses reports whether two rules of one priority hand a datagram of SCTP on, of which one names ports, which the userspace datapath
// does not know: by that one it is dropped, and by the other one not, and which of the two the switch takes is open. Either is right.
func (c policyPacket) eitherPasses(p pipeline.Policy) bool {
	ports, all := map[int]bool{}, map[int]bool{}
	for _, r := range p.Rules {
		if c.Proto != 132 || r.Action != pipeline.Pass {
			continue
		}
		if r.AnyPort {
			all[r.Priority] = true
		} else {
			ports[r.Priority] = true
		}
	}
	for priority := range ports {
		if all[priority] {
			return true
		}
	}
	return false
}

// first is the action of the first rule that matches, by the default if none does.
func (c policyPacket) first(p pipeline.Policy, d pipeline.Direction) pipeline.Action {
	class := func(a netip.Addr) (id uint32) {
		for _, c := range p.Classes {
			for _, r := range c.Ranges {
				if r.Contains(a) {
					id = c.ID
				}
			}
		}
		for _, c := range p.Classes {
			if slices.Contains(c.Addrs, a) {
				id = c.ID
			}
		}
		return id
	}
	subject, peer := c.Dst, c.Src
	if d == pipeline.Egress {
		subject, peer = c.Src, c.Dst
	}
	rules := slices.Clone(p.Rules)
	for _, o := range p.Openings {
		if open := c.State == "established" || c.State == "related"; d == pipeline.Egress && o.From == subject && o.To == peer && (open && !(c.Undecided && c.Answer) || !o.Past) {
			rules = append(rules, pipeline.PolicyRule{
				ID: o.Rule, Direction: d, Priority: o.Priority, Action: o.Action, Subjects: []uint32{class(subject)}, AnyPeer: true, AnyPort: o.AnyPort, Ports: o.Ports,
			})
		}
	}
	slices.SortStableFunc(rules, func(a, b pipeline.PolicyRule) int { return cmp.Compare(b.Priority, a.Priority) })
	passed := false
	for _, r := range rules {
		switch {
		case r.Direction != d || passed && r.Priority > pipeline.PriorityNetworkPolicy:
		case !slices.Contains(r.Subjects, class(subject)):
		case !r.AnyPeer && !slices.Contains(r.Peers, class(peer)) && !slices.ContainsFunc(r.Blocks, func(b netip.Prefix) bool { return b.Contains(peer) }):
		case !r.AnyPort && c.Proto == 132 && r.Action != pipeline.Accept && slices.ContainsFunc(r.Ports, func(p pipeline.PortRange) bool { return p.Proto == 132 }):
			// Of SCTP the userspace datapath knows no ports.
			if r.Action == pipeline.Pass {
				return pipeline.Drop
			}
			return r.Action
		case !r.AnyPort && (c.Proto == 132 || !slices.ContainsFunc(r.Ports, c.to)):
		case r.Action == pipeline.Pass:
			passed = true
		default:
			return r.Action
		}
	}
	return pipeline.Drop
}

func (c policyPacket) to(r pipeline.PortRange) bool {
	if r.Proto != c.Proto {
		return false
	}
	if c.Proto == 1 || c.Proto == 58 {
		return (r.From == 65535 || r.From == c.From) && (r.To == 65535 || r.To == c.To)
	}
	return r.From <= c.To && c.To <= r.To
}

// tracer asks the switch, by its control socket.
type tracer struct {
	port     map[string]uint32
	compiler *pipeline.Compiler
	ask      *json.Encoder
	answer   *json.Decoder
	bridge   string
}

func (w *tracer) dial(t *testing.T, b *ovs.Bridge) {
	sockets, err := filepath.Glob(filepath.Join(b.RunDir, "ovs-vswitchd.*.ctl"))
	if err != nil || len(sockets) != 1 {
		t.Fatal(err, sockets)
	}
	conn, err := net.Dial("unix", sockets[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	w.ask, w.answer, w.bridge = json.NewEncoder(conn), json.NewDecoder(conn), b.Name
}

var noted = regexp.MustCompile(`ct\(commit,zone=26486,mark=(0|0x[0-9a-f]+)/0xffffffff`)

// judge asks the switch what becomes of a packet.
func (w *tracer) judge(t *rapid.T, c policyPacket) (string, string) {
	packet, state := c.text(w.port)
	effect, trace := w.trace(t, packet, state)
	// What was found out for one pair of addresses is for no other, if their classes were looked up.
	for part := range strings.SplitSeq(trace, "resume conntrack") {
		mega := megaflow.FindString(part)
		if strings.Contains(part, "\n45. ") && !wholeEnds.MatchString(mega) {
			t.Fatalf("%s: its class is looked up, and what is found is for others, too: %s\n%s", packet, mega, trace)
		}
	}
	return effect, trace
}

var (
	megaflow  = regexp.MustCompile(`(?m)^Megaflow: .*$`)
	wholeEnds = regexp.MustCompile(`,ct_(nw|ipv6)_src=[0-9a-f.:]+,ct_(nw|ipv6)_dst=[0-9a-f.:]+,`)
)

func (w *tracer) trace(t interface {
	Fatal(...any)
	Fatalf(string, ...any)
}, packet, state string) (string, string) {
	var answer struct {
		Result string
		Error  any
	}
	request := map[string]any{"id": 0, "method": "ofproto/trace", "params": []string{w.bridge, packet, "--ct-next", state}}
	if err := w.ask.Encode(request); err != nil {
		t.Fatal(err)
	}
	if err := w.answer.Decode(&answer); err != nil || answer.Error != nil {
		t.Fatalf("%s: %v %v", packet, err, answer.Error)
	}
	at := strings.LastIndex(answer.Result, "Datapath actions: ")
	do := answer.Result[at:]
	mark := noted.FindStringSubmatch(answer.Result) // the packet goes on after that
	switch {
	case strings.Contains(do, pipeline.RejectMAC.String()):
		return "rejected", answer.Result
	case strings.Contains(do, "actions: drop"):
		return "dropped", answer.Result
	case strings.Contains(answer.Result, "ct(commit,zone=26486,label=0x10000000000000000/0x10000000000000000)"):
		return "passes, and is undecided", answer.Result
	case mark != nil:
		return "passes, and is noted with 0x" + strings.TrimPrefix(mark[1], "0x"), answer.Result
	}
	return "passes", answer.Result
}

// text is the packet as ofproto/trace takes it, with what connection tracking knows of it.
func (c policyPacket) text(port map[string]uint32) (packet, state string) {
	src, dst, from, to := c.Src, c.Dst, c.From, c.To
	if c.Answer {
		src, dst, from, to = dst, src, to, from
	}
	proto := map[uint8]string{6: "tcp", 17: "udp", 132: "sctp", 1: "icmp", 58: "icmp"}[c.Proto]
	nw, six := "nw_", ""
	if src.Is6() {
		nw, six = "ipv6_", "6"
	}
	var ct string
	cnw := map[bool]string{true: "ct_nw_", false: "ct_ipv6_"}[src.Is4()]
	orig := c
	if c.State == "midstream" { // conntrack takes it for the first packet, in its own direction
		orig.Src, orig.Dst, orig.From, orig.To = src, dst, from, to
	}
	ct = fmt.Sprintf("ct_state=0x21,ct_mark=%#x,%ssrc=%s,%sdst=%s,ct_nw_proto=%d,ct_tp_src=%d,ct_tp_dst=%d", c.Mark, cnw, orig.Src, cnw, orig.Dst, c.Proto, orig.From, orig.To)
	if c.Undecided {
		ct += ",ct_label=0x10000000000000000"
	}
	head := fmt.Sprintf("%ssrc=%s,%sdst=%s,nw_ttl=64", nw, src, nw, dst)
	switch {
	case c.State == "related":
		proto, head = "icmp", head+map[bool]string{true: ",icmp_type=3,icmp_code=3", false: ",icmpv6_type=1,icmpv6_code=4"}[src.Is4()]
	case proto == "icmp":
		head += fmt.Sprintf(map[bool]string{true: ",icmp_type=%d,icmp_code=%d", false: ",icmpv6_type=%d,icmpv6_code=%d"}[src.Is4()], c.From, c.To)
	default:
		head += fmt.Sprintf(",%s_src=%d,%s_dst=%d", proto, from, proto, to)
	}
	if proto == "tcp" {
		head += ",tcp_flags=" + map[string]string{"new": "syn", "midstream": "ack", "established": "ack"}[c.State]
	}
	var port0 string
	switch name, local := policyLocal[src]; {
	case local:
		port0 = fmt.Sprintf("in_port=%d,dl_src=02:42:00:00:00:%s,dl_dst=%s", port["gv"+name], map[string]string{"a": "61", "g": "67"}[name], pipeline.RouterMAC)
	case src == addr("10.128.2.9") || src == addr("10.128.2.10") || src == addr("fd00:1::2:9"):
		s, d := headerBits(5, 2)
		port0 = fmt.Sprintf("in_port=%d,dl_src=%s,dl_dst=%s", port["gvtun"], s, d)
	default:
		port0 = fmt.Sprintf("in_port=%d,dl_src=02:42:00:00:00:02,dl_dst=%s", port["gv0"], pipeline.RouterMAC)
	}
	state = map[string]string{"new": "trk,new", "midstream": "trk,new", "established": "trk,est", "related": "trk,rel"}[c.State]
	if c.Answer && c.State != "midstream" {
		state += ",rpl"
	}
	return fmt.Sprintf("%s%s,%s,%s,%s", proto, six, ct, port0, head), state
}

// TestPolicyEchoes: the switch reports the flows of rules as they were set, so that they are
// known for echoes.
func TestPolicyEchoes(t *testing.T) {
	b, port := sceneSwitch(t, pipeline.HeaderBits)
	without, err := pipeline.Compile(scene(pipeline.HeaderBits, port))
	if err != nil {
		t.Fatal(err)
	}
	settled := policyFor(port)
	settled.Generation = 0xffff
	for i := range settled.Policy.Rules[2:] { // and one has none
		settled.Policy.Rules[2+i].Slot = uint16(pipeline.MaxSlot - i)
	}
	with, err := pipeline.Compile(settled)
	if err != nil {
		t.Fatal(err)
	}
	changes := make(chan ovs.Change, 10000)
	watching := make(chan struct{}, 10)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- b.Watch(ctx, func(c ovs.Change) {
			if changes <- c; c.What == ovs.Anything {
				watching <- struct{}{}
			}
		})
	}()
	defer func() { cancel(); <-done }()
	<-watching
	c := pipeline.Diff(without, with)
	want := map[string]bool{}
	text := func(f pipeline.Flow) string { f.Priority = 0; return f.String() }
	for _, f := range c.Add {
		want[text(f)] = true
	}
	// The monitor of flows may begin after that of ports: what it missed is set again.
	for seen, tries := map[string]bool{}, 0; len(seen) < len(want); tries++ {
		if tries == 20 {
			t.Fatalf("the switch tells of %d of %d flows", len(seen), len(want))
		}
		if err := b.ApplyBundle(t.Context(), c.Lines()); err != nil {
			t.Fatal(err)
		}
		for waited := time.After(time.Second); len(seen) < len(want); {
			select {
			case got := <-changes:
				if f := text(pipelineFlow(got.Flow)); got.What == ovs.FlowSet && want[f] {
					seen[f] = true
				} else if got.What != ovs.Anything && got.What != ovs.Ports && !(got.What == ovs.FlowGone && want[f]) {
					t.Fatalf("the switch tells of %+v", got)
				}
				continue
			case <-waited:
			}
			break
		}
		if err := b.ApplyBundle(t.Context(), pipeline.Diff(with, without).Lines()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPolicyErrorsOfOthers: an ICMP error is judged by the connection that it is about. So who has rules for what he sends sends
// them about his own alone, whoever called whom: about others' he would send what they may, and where.
func TestPolicyErrorsOfOthers(t *testing.T) {
	b, port := sceneSwitch(t, pipeline.HeaderBits)
	w := tracer{port: port, compiler: &pipeline.Compiler{}}
	w.dial(t, b)
	in := policyFor(port)
	in.Policy.Rules = []pipeline.PolicyRule{
		{ID: 1, Direction: pipeline.Egress, Action: pipeline.Accept, Subjects: []uint32{4000000000}, Priority: 2, AnyPeer: true, AnyPort: true},
		{ID: 2, Direction: pipeline.Egress, Action: pipeline.Drop, Subjects: []uint32{1}, Priority: 1, AnyPeer: true, AnyPort: true},
	}
	flows, err := pipeline.Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.ApplyBundle(t.Context(), pipeline.Diff(nil, flows).Lines()); err != nil {
		t.Fatal(err)
	}
	const settled = "ct_mark=0x1ffff"
	for _, f := range []struct {
		proto, source, head, ct  string
		own, outside, other, far string
	}{
		{"icmp", "nw_src", ",nw_dst=%s,icmp_type=3,icmp_code=3", "ct_nw_", "10.128.0.7", "198.51.100.9", "10.128.0.8", "10.128.2.9"},
		{"icmp6", "ipv6_src", ",ipv6_dst=%s,icmpv6_type=1,icmpv6_code=4", "ct_ipv6_", "fd00:1::7", "2001:db8::9", "fd00:1::8", "fd00:1::2:9"},
	} {
		for _, c := range []struct{ to, from, at, want string }{
			{f.outside, f.own, f.outside, "passes"}, {f.outside, f.outside, f.own, "passes"}, {f.far, f.far, f.own, "passes"},
			{f.outside, f.other, f.outside, "dropped"}, {f.outside, f.outside, f.other, "dropped"}, {f.far, f.far, f.other, "dropped"}, {f.far, f.other, f.far, "dropped"},
		} {
			for _, state := range []string{"trk,rel", "trk,rel,rpl"} {
				packet := fmt.Sprintf("%s,in_port=%d,dl_src=02:42:00:00:00:61,dl_dst=%s,ct_state=0x21,%s,%ssrc=%s,%sdst=%s,ct_nw_proto=6,ct_tp_src=40000,ct_tp_dst=80,nw_ttl=64,%s=%s"+f.head,
					f.proto, port["gva"], pipeline.RouterMAC, settled, f.ct, c.from, f.ct, c.at, f.source, f.own, c.to)
				if got, trace := w.trace(t, packet, state); got != c.want {
					t.Errorf("an error to %s about %s to %s, %s: the switch does %q, want %q\n%s", c.to, c.from, c.at, state, got, c.want, trace)
				}
			}
		}
	}
	// What else is said to be related is a connection that a kernel's helper expects, as FTP's: of that the rules see the ports of another one.
	for _, state := range []string{"trk,rel,new", "trk,rel,est", "trk,rel,est,rpl"} {
		packet := fmt.Sprintf("tcp,in_port=%d,dl_src=02:42:00:00:00:61,dl_dst=%s,ct_state=0x21,%s,ct_nw_src=10.128.0.7,ct_nw_dst=198.51.100.9,ct_nw_proto=6,ct_tp_src=40000,ct_tp_dst=80,nw_ttl=64,nw_src=10.128.0.7,nw_dst=198.51.100.9,tp_src=20,tp_dst=4000",
			port["gva"], pipeline.RouterMAC, settled)
		if got, trace := w.trace(t, packet, state); got != "dropped" {
			t.Errorf("what is expected, %s: the switch does %q\n%s", state, got, trace)
		}
	}
}
