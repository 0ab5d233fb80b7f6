package fastpath

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"pgregory.net/rapid"

	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// TestAgreeSettled: packets of connections of endpoints with rules, in sequence, while the rules change. What the switch marks is
// noted; what the programs carry then the switch would let through without a judgement, to the same place, in that moment, and
// it is counted for the rules that let the connection through. Between the new generation and the new flows nothing is carried.
func TestAgreeSettled(t *testing.T) {
	w := newJudges(t)
	carried, noted, stopped, changed, killed, opened, over := 0, 0, 0, 0, 0, 0, 0
	begun, gated, edges, handed, refused, told := 0, 0, 0, 0, 0, 0
	by := map[string]int{}
	shares := map[bool][]uint32{} // of callers from outside
	rapid.Check(t, func(t *rapid.T) {
		in := inputs().Draw(t, "cluster")
		rules(t, &in)
		in.Generation = uint16(rapid.SampledFrom([]int{1, 2, 65534, 65535}).Draw(t, "generation"))
		in.Secret = 0x9abcdef0
		must(t, w.objs.GvGeneration.Put(secretPlace, in.Secret))
		for _, m := range []*ebpf.Map{w.objs.GvSettled, w.objs.GvGranted, w.objs.GvOwn} {
			forget(t, m)
		}
		w.tables.known, w.tables.before = known{}, nil
		cpus, err := ebpf.PossibleCPU()
		must(t, err)
		for slot := uint32(slotFromZero); slot < firstSlot; slot++ { // which go with no entry
			must(t, w.objs.GvFpCounters.Put(slot, make([]counter, cpus)))
		}
		for _, slot := range ruleSlots { // or they have more than these, whose difference is taken
			must(t, w.objs.GvRules.Put(uint32(slot), make([]ruleCounter, cpus)))
		}
		must(t, w.tables.void(in))
		w.install(t, in, Compile(in, w.device))
		w.drawn = in
		tracked, notedAt := map[tuple]*connection{}, map[tuple]int{}
		for range 60 {
			switch rapid.IntRange(0, 15).Draw(t, "step") {
			case 0: // other rules
				next := in
				rules(t, &next)
				killed += w.change(t, in, next, tracked)
				for _, c := range tracked {
					c.grants = false
				}
				in = w.drawn
				changed++
				continue
			case 1: // the switch notes a connection no more, or what may begin
				forget(t, rapid.SampledFrom([]*ebpf.Map{w.objs.GvSettled, w.objs.GvGranted}).Draw(t, "map"))
				continue
			case 2: // other openings, which begin no generation: what is open goes on
				in = w.open(t, in)
				opened++
				continue
			case 3, 4:
				if w.errs(t, in, tracked) {
					told++
				}
				continue
			}
			p, frame := w.draw(t, in, tracked)
			if p.Gateway && tracksExits(in, p.Dst) {
				continue // the switch notes it in another zone as well, and marks the answers alone: these are drawn
			}
			guarded := guards(in, w.device, p)
			w.settle(t)
			ruled := w.before
			before, err := w.tables.tally()
			must(t, err)
			got, _, out := w.program(t, p, frame)
			key := keyOfFrame(frame)
			c := tracked[key]
			if got != (Verdict{}) && guarded {
				after, err := w.tables.tally()
				must(t, err)
				first := begins(before) != begins(after)
				if first {
					if key.proto != 6 || flagsOf(frame)&(0x12|5) != 2 {
						t.Fatalf("%v begins, and is no first packet", p)
					}
					if slices.ContainsFunc(in.Policy.Guards, func(g pipeline.Guard) bool { return g.Named && g.Egress && slices.Contains(g.Addrs, p.Src) }) {
						t.Fatalf("%v begins, and its rules may be by name", p)
					}
					c = &connection{src: p.Src, dst: p.Dst, from: port(frame, 0), to: port(frame, 2), own: true, grants: true}
					tracked[key] = c
					if begun++; p.Gateway || got.Gateway {
						gated++
					}
					var v ownValue
					must(t, w.objs.GvOwn.Lookup(key.own(), &v))
					if shares[p.Gateway] = append(shares[p.Gateway], v.Share); p.Gateway && v.Share != shares[true][0] {
						t.Fatalf("%v has the share %d, and who came before from outside %d", p, v.Share, shares[true][0])
					}
				}
				if c == nil {
					t.Fatalf("%v is carried, and its connection is unknown", p)
				}
				state, edge := c.state(p), key.proto == 6 && flagsOf(frame)&7 != 0 && !first
				if first {
					state = "trk,new"
				}
				want, trace, macs := w.ovsTracking(t, in, p, frame, c.known(key), "--ct-next", state)
				if first {
					c.commit(t, trace)
				}
				if edge {
					edges++
				}
				if edge && !c.own && !c.handed {
					t.Fatalf("%v is carried, an end or a beginning of a connection that the switch knows", p)
				}
				by95 := unjudged
				if first {
					by95 = granted
				} else if edge {
					by95 = passed
				}
				bare := got.Gateway && in.GatewayBare
				if got != want || !(bare || edge || macs[6] == 3) || !by95.MatchString(trace) {
					t.Fatalf("%v:\n%x\nis carried to %+v; the switch says %+v, %x\n%s", p, frame, got, want, macs, trace)
				}
				if !bare && !edge && binary.BigEndian.Uint16(macs[7:]) != in.Generation {
					t.Fatalf("generation %d: %x", in.Generation, macs)
				}
				if !bytes.Equal(frame[12:], out[12:]) {
					t.Fatalf("%v: more than MAC addresses is changed", p)
				}
				counted := pipeline.Count{Packets: 1, Bytes: uint64(len(frame))}
				for _, r := range in.Policy.Rules {
					was, is := before.Rules[r.ID], after.Rules[r.ID]
					more := pipeline.Count{Packets: is.Packets - was.Packets, Bytes: is.Bytes - was.Bytes}
					if want := slices.Contains(c.rules[:], r.ID) && r.Slot != 0; want != (more == counted) || !want && more != (pipeline.Count{}) {
						t.Fatalf("%v: rule %d (of %v) counts %+v", p, r.ID, c.rules, more)
					}
				}
				w.before = ruled
				w.countedBut(t, after, trace, len(frame), first)
				carried++
				if notedAt[key] < opened {
					over++
				}
				switch {
				case got.Gateway:
					by["to the gateway"]++
				case p.Gateway:
					by["from the gateway"]++
				case got.VTEP.IsValid():
					by["into the tunnel"]++
				case p.From.IsValid():
					by["out of it"]++
				default:
					by["here"]++
				}
				continue
			}
			if got != (Verdict{}) || !guarded {
				continue
			}
			// It visits the switch.
			if c != nil && c.own {
				var v ownValue
				if err := w.objs.GvOwn.Lookup(key.own(), &v); err != nil { // it has ended
					delete(tracked, key)
					continue
				}
				if flags := flagsOf(frame); flags&2 != 0 || flags&0x14 == 0 { // what answers a beginning comes again, and so does what begins; without ACK and RST it is of none
					continue
				}
				if out[0] != 0x0e || !bytes.Equal(out[6:], frame[6:]) {
					t.Fatalf("%v:\n%x\ngoes to the switch, which is not told who called: %x", p, frame, out)
				}
				other := *c
				other.mark = "0xffffffff" // other rules have other epochs, which here are drawn
				known, _, _ := w.ovsTracking(t, in, p, frame, other.known(key), "--ct-next", other.state(p))
				told, trace, _ := w.ovsTracking(t, in, p, out, (&connection{src: p.Src, dst: p.Dst, from: port(frame, 0), to: port(frame, 2)}).known(key), "--ct-next", "trk,new")
				if told != known && (told != Verdict{} || len(in.Policy.Openings) == 0) {
					t.Fatalf("%v: by what it is told the switch says %+v, and %+v of what it knows itself\n%s", p, told, known, trace)
				}
				if handed++; told == (Verdict{}) {
					refused++
				} else if committed.MatchString(trace) {
					c.own, c.handed = false, true
					c.commit(t, trace)
				}
				continue
			}
			if !bytes.Equal(out, frame) { // it was handed over before, and nothing is noted yet: the switch knows better than what it is told
				var v ownValue
				if err := w.objs.GvOwn.Lookup(key.own(), &v); err != nil || c == nil || out[0] != 0x0e || !bytes.Equal(out[6:], frame[6:]) {
					t.Fatalf("%x goes on as %x: %v", frame, out, err)
				}
				frame = out
			}
			state, known := "trk,new", ""
			if c != nil {
				state, known = c.state(p), c.known(key)
			} else {
				c = &connection{src: p.Src, dst: p.Dst, from: port(frame, 0), to: port(frame, 2)}
				known = c.known(key)
			}
			want, trace, macs := w.ovsTracking(t, in, p, frame, known, "--ct-next", state)
			if want == (Verdict{}) {
				stopped++
				continue
			}
			if want.Copies != "" {
				continue // to all of a network: nothing is noted of that
			}
			if macs[6] == 3 && (want.Gateway && in.GatewayBare || slices.ContainsFunc(in.Ports, func(port pipeline.Port) bool { return port.Bare && w.device[port.Endpoint] == want.Ifindex })) {
				t.Fatalf("%v: %x goes where nobody takes the mark off\n%s", p, macs, trace)
			}
			if c.commit(t, trace) {
				tracked[key] = c
			}
			if macs[6] == 3 {
				if key.proto == 6 && flagsOf(frame)&2 != 0 {
					c.grants = true
				} else {
					c.handed = false
				}
				noted++
				notedAt[key] = opened
				w.note(t, want, frame, macs)
			}
		}
	})
	more := fmt.Sprintf("%d connections began without the switch, %d of them by the gateway, %d of their packets begin or end something, %d were handed to the switch, which refused %d; %d errors were carried", begun, gated, edges, handed, refused, told)
	t.Log(more)
	if !testing.Short() && (len(slices.Compact(slices.Sorted(slices.Values(shares[false])))) < 2 || begun < 15 || gated == 0 || edges < 4 || handed < 12 || refused < 3 || told == 0) {
		t.Error(more + ": the test shows little")
	}
	sums := fmt.Sprintf("%d packets were carried (%v), %d of them noted before the last openings, %d noted, %d stopped; rules changed %d times, openings %d, and agents were killed %d times", carried, by, over, noted, stopped, changed, opened, killed)
	t.Log(sums)
	if !testing.Short() && (carried < 150 || noted < 200 || stopped < 200 || changed < 100 || killed < 20 || over < 5 || len(by) < 5) {
		t.Error(sums + ": the test shows little")
	}
}

// unjudged is the flow that finds a connection settled.
var unjudged = regexp.MustCompile(`(?m)^ *95\. .*priority 50,`)

// granted is the flow of first packets by which others may begin, and passed that of all else that is not judged.
var (
	granted = regexp.MustCompile(`(?m)^ *95\. .*priority 215,`)
	passed  = regexp.MustCompile(`(?m)^ *95\. .*priority 0,`)
	related = regexp.MustCompile(`(?m)^ *95\. .*priority (305|320),.*$`)
)

// begins counts first packets that were carried.
func begins(t pipeline.Tally) uint64 {
	return t.Settled[4].Egress.Packets + t.Settled[4].Ingress.Packets + t.Settled[4].Containers.Packets + t.Settled[4].Gateway.Packets +
		t.Settled[5].Egress.Packets + t.Settled[5].Ingress.Packets + t.Settled[5].Containers.Packets + t.Settled[5].Gateway.Packets
}

// flagsOf are a frame's flags of TCP.
func flagsOf(frame []byte) byte {
	if frame[12] == 8 {
		return frame[34+13]
	}
	return frame[54+13]
}

// own is a tuple as the programs have it.
func (k tuple) own() (out ownKey) {
	for i, e := range k.ends {
		out.Ends[i] = addressOf(e.Addr())
		binary.BigEndian.PutUint16(out.Ports[i][:], e.Port())
	}
	if bytes.Compare(littleEnd(out.Ends[0]), littleEnd(out.Ends[1])) > 0 || out.Ends[0] == out.Ends[1] && binary.NativeEndian.Uint16(out.Ports[0][:]) > binary.NativeEndian.Uint16(out.Ports[1][:]) {
		out.Ends[0], out.Ends[1], out.Ports[0], out.Ports[1] = out.Ends[1], out.Ends[0], out.Ports[1], out.Ports[0]
	}
	out.Protocol = uint32(k.proto)
	return out
}

// littleEnd has the words of an address in the order in which the programs compare them, as they see them.
func littleEnd(a address) (out []byte) {
	for i := 0; i < 16; i += 4 {
		out = binary.BigEndian.AppendUint32(out, binary.NativeEndian.Uint32(a[i:]))
	}
	return out
}

// errs draws an error of ICMP with which an end of a connection answers the other, or something like it, and reports whether it is carried.
func (w *judges) errs(t *rapid.T, in pipeline.Input, tracked map[tuple]*connection) bool {
	keys := slices.SortedFunc(maps.Keys(tracked), func(a, b tuple) int {
		return bytes.Compare(fmt.Append(nil, a), fmt.Append(nil, b))
	})
	if keys = slices.DeleteFunc(keys, func(k tuple) bool { return k.proto != 6 }); len(keys) == 0 {
		return false
	}
	if owned := slices.DeleteFunc(slices.Clone(keys), func(k tuple) bool { return !tracked[k].own }); len(owned) > 0 {
		keys = owned
	}
	key := rapid.SampledFrom(keys).Draw(t, "connection")
	c := tracked[key]
	about, quoted := c.packet(t, in, w.device, key)
	p, _ := c.packet(t, in, w.device, key)
	for p.Src != about.Dst {
		p, _ = c.packet(t, in, w.device, key)
	}
	router := p.Gateway && rapid.Bool().Draw(t, "by a router")
	if router {
		p.Src = map[bool]netip.Addr{true: addrs("198.51.100.1")[0], false: addrs("2001:db8::9")[0]}[p.Src.Is4()]
	}
	kind, odd := byte(rapid.SampledFrom([]int{1, 3, 4}).Draw(t, "type of ICMPv6")), rapid.SampledFrom([]string{"", "", "", "its source", "its destination", "a port", "its protocol", "a type", "fragment", "cut", "as of ICMPv6"}).Draw(t, "odd")
	quoted = quoted[14:]
	at, proto, fragment := 12, 9, []byte{0x20, 0}
	if p.Src.Is4() {
		kind = rapid.SampledFrom([]byte{3, 11, 12}).Draw(t, "type of ICMP")
	} else {
		at, proto = 8, 6
	}
	long := len(p.Src.AsSlice())
	switch odd {
	case "its source":
		quoted[at+long-1] ^= 1
	case "its destination":
		quoted[at+2*long-1] ^= 1
	case "a port":
		quoted[at+2*long+1] ^= 0x40
	case "its protocol":
		quoted[proto] = 17
	case "a type":
		kind = map[bool]byte{true: 5, false: 129}[p.Src.Is4()]
	case "fragment":
		if !p.Src.Is4() {
			return false
		}
		copy(quoted[6:], fragment)
	case "cut":
		quoted = quoted[:at+2*long+7]
	case "as of ICMPv6":
		if !p.Src.Is4() {
			return false
		}
		from, to, l4 := about.Src.As16(), about.Dst.As16(), quoted[20:]
		kind, quoted = 1, slices.Concat([]byte{0x60, 0, 0, 0, 0, byte(len(l4)), 6, 64}, from[:], to[:], l4)
	}
	frame := errorOf(p, kind, quoted)
	if odd == "as of ICMPv6" {
		frame[14+9] = 58
	}
	before, err := w.tables.tally()
	must(t, err)
	w.settle(t)
	ruled := w.before
	got, _, out := w.program(t, p, frame)
	if !guards(in, w.device, p) {
		return false
	}
	if got == (Verdict{}) {
		if !bytes.Equal(out, frame) {
			t.Fatalf("%x goes on as %x", frame, out)
		}
		return false
	}
	after, err := w.tables.tally()
	must(t, err)
	if odd != "" || !c.own {
		t.Fatalf("%v: an error about a connection is carried, with %q odd: %x", p, odd, frame)
	}
	state := "trk,rel"
	if p.Dst == c.src {
		state += ",rpl"
	}
	want, trace, _ := w.ovsTracking(t, in, p, frame, c.known(key), "--ct-next", state)
	if got != want || !related.MatchString(trace) {
		t.Fatalf("%v:\n%x\nis carried to %+v; the switch says %+v\n%s", p, frame, got, want, trace)
	}
	counted := pipeline.Count{Packets: 1, Bytes: uint64(len(frame))}
	for _, r := range in.Policy.Rules {
		was, is := before.Rules[r.ID], after.Rules[r.ID]
		more := pipeline.Count{Packets: is.Packets - was.Packets, Bytes: is.Bytes - was.Bytes}
		if want := slices.Contains(c.rules[:], r.ID) && r.Slot != 0; want != (more == counted) || !want && more != (pipeline.Count{}) {
			t.Fatalf("%v: of an error rule %d (of %v) counts %+v", p, r.ID, c.rules, more)
		}
	}
	w.before = ruled
	w.countedBut(t, after, related.ReplaceAllString(trace, ""), len(frame), false) // which of the flows for errors nobody knows
	return true
}

// errorOf is a frame of ICMP, or of ICMPv6, that quotes an IP packet.
func errorOf(p Packet, kind byte, quoted []byte) []byte {
	l4 := slices.Concat([]byte{kind, 0, 0, 0, 0, 0, 0, 0}, quoted)
	frame := slices.Concat(pipeline.RouterMAC, p.MAC[:])
	if p.Src.Is4() {
		ip := make([]byte, 20)
		ip[0], ip[8], ip[9] = 0x45, 64, 1
		binary.BigEndian.PutUint16(ip[2:], uint16(20+len(l4)))
		return slices.Concat(frame, []byte{8, 0}, ip[:12], p.Src.AsSlice(), p.Dst.AsSlice(), l4)
	}
	ip := make([]byte, 8)
	ip[0], ip[6], ip[7] = 0x60, 58, 64
	binary.BigEndian.PutUint16(ip[4:], uint16(len(l4)))
	return slices.Concat(frame, []byte{0x86, 0xdd}, ip, p.Src.AsSlice(), p.Dst.AsSlice(), l4)
}

// tracksExits reports whether the switch notes who calls a container from outside by this host, since what it sends leaves by another one.
func tracksExits(in pipeline.Input, to netip.Addr) bool {
	return slices.ContainsFunc(in.Ports, func(port pipeline.Port) bool {
		return slices.Contains(port.Addrs, to) && slices.ContainsFunc(in.Exits, func(e pipeline.Exit) bool { return e.VNID == port.VNID && e.Track })
	})
}

// change makes the rules those of next as an agent does, which may be killed before any of its writes. From its first one on
// nothing is carried of what was noted, until the next agent is through. It returns how many agents were killed.
func (w *judges) change(t *rapid.T, in, next pipeline.Input, tracked map[tuple]*connection) (killed int) {
	quiet := func(when string) {
		for k, c := range tracked {
			p, frame := c.packet(t, in, w.device, k)
			if got, _, _ := w.program(t, p, frame); got != (Verdict{}) && (guards(in, w.device, p) || guards(next, w.device, p)) {
				t.Fatalf("%v is carried %s: %+v", p, when, got)
			}
		}
	}
	w.drawn = next
	for {
		must(t, w.tables.readKnown()) // an agent that begins
		must(t, w.tables.read())
		next.Generation = uint16(w.tables.known.generation) + 1
		if next.Generation == 0 {
			next.Generation = 1
		}
		w.drawn = next
		left := rapid.IntRange(0, 12).Draw(t, "writes before the agent is killed")
		w.tables.before = func() error {
			if left == 0 {
				return errKilled
			}
			left--
			return nil
		}
		err := w.tables.void(next)
		if err == nil {
			quiet("while the flows are those of before")
			err = w.tables.write(Between(w.tables.held, Compile(next, w.device)))
		}
		if err == nil {
			quiet("while the flows are those of before")
			w.flow(t, next)
			quiet("before anything was noted by new flows")
			err = w.tables.write(Compile(next, w.device))
		}
		w.tables.before = nil
		if err == nil {
			quiet("before anything was noted by new flows")
			return killed
		}
		if !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		if killed++; uint16(w.tables.known.generation) == next.Generation {
			quiet("after an agent was killed")
		}
	}
}

// open draws other openings than those of in.
func (w *judges) open(t *rapid.T, in pipeline.Input) pipeline.Input {
	next := in
	next.Policy.Openings = nil
	for _, g := range in.Policy.Guards {
		if !g.Named || !g.Egress {
			continue
		}
		for _, from := range g.Addrs {
			to := rapid.SampledFrom(slices.DeleteFunc(peers(in), func(a netip.Addr) bool { return !a.IsValid() || a.Is4() != from.Is4() || a == from })).Draw(t, "to")
			o := pipeline.Opening{Rule: 2 * uint32(rapid.IntRange(1, 4).Draw(t, "rule")), Priority: pipeline.PriorityNetworkPolicy, Action: pipeline.Accept, From: from, To: to, Past: rapid.Bool().Draw(t, "past"), Named: true, AnyPort: rapid.Bool().Draw(t, "any port")}
			if rapid.Bool().Draw(t, "denies") {
				o.Priority, o.Action = o.Priority+rapid.SampledFrom([]int{5, -5}).Draw(t, "priority"), pipeline.Drop
			}
			if !o.AnyPort {
				o.Ports = services
			}
			next.Policy.Openings = append(next.Policy.Openings, o)
		}
	}
	had, err := pipeline.Compile(in)
	must(t, err)
	has, err := pipeline.Compile(next)
	must(t, err)
	if changes := pipeline.Diff(had, has); changes.TouchPolicy() {
		t.Fatalf("openings begin a generation: %v", changes.Lines())
	}
	w.drawn = next
	w.flow(t, next)
	return next
}

// peers are all whom a connection may be with.
func peers(in pipeline.Input) (list []netip.Addr) {
	list = addrs("192.0.2.77", "2001:db8::77")
	for _, p := range in.Ports {
		list = append(list, p.Addrs...)
	}
	for _, r := range in.Routes {
		list = append(list, r.Prefix.Addr(), r.Prefix.Addr().Next())
	}
	return list
}

var ruleSlots = []uint16{0, 1, 2, 255, 256, 4094, 4095, 0xa5a}

var errKilled = errors.New("killed")

// rules draws rules for the endpoints that have some: by one class here and elsewhere, of all that may be a peer.
func rules(t *rapid.T, in *pipeline.Input) {
	p := pipeline.Policy{}
	in.Ports = slices.Clone(in.Ports)
	for i := range in.Ports {
		port := &in.Ports[i]
		if port.Plain && rapid.IntRange(0, 3).Draw(t, "stays plain") == 0 || len(port.Addrs) == 0 {
			continue
		}
		port.Plain, port.Guarded, port.Bare = false, true, rapid.IntRange(0, 15).Draw(t, "bare") == 7
		p.Guards = append(p.Guards, pipeline.Guard{
			Endpoint: port.Endpoint, Addrs: port.Addrs, LinkLocal: port.LinkLocal, VNID: port.VNID,
			Named: rapid.IntRange(0, 3).Draw(t, "names") == 0, Ingress: rapid.IntRange(0, 3).Draw(t, "ingress") > 0, Egress: rapid.Bool().Draw(t, "egress"),
			IngressEpoch: uint16(rapid.IntRange(1, 2).Draw(t, "epoch")), EgressEpoch: uint16(rapid.IntRange(1, 2).Draw(t, "epoch")),
		})
		p.Classes = append(p.Classes, pipeline.Class{ID: uint32(1 + i), Addrs: port.Addrs})
	}
	slots := rapid.Permutation(ruleSlots).Draw(t, "slots")
	for i, n := 0, rapid.IntRange(2, 6).Draw(t, "rules"); i < n; i++ {
		r := pipeline.PolicyRule{ID: uint32(1 + i), Direction: pipeline.Direction(1 + i%2), Priority: pipeline.PriorityNetworkPolicy, Action: pipeline.Accept, Label: fmt.Sprint("rule ", i), AnyPeer: true, Slot: slots[i]}
		r.Subjects = rapid.SliceOfNDistinct(rapid.SampledFrom([]uint32{1, 2, 3, 4}), 1, 4, rapid.ID[uint32]).Draw(t, "subjects")
		if r.AnyPort = rapid.Bool().Draw(t, "any port"); !r.AnyPort {
			r.Ports = []pipeline.PortRange{{Proto: 6, From: 80, To: 80}, {Proto: 17, From: 53, To: 53}}
		}
		p.Rules = append(p.Rules, r)
	}
	if rapid.IntRange(0, 3).Draw(t, "crowded") == 0 {
		p.Crowds = []pipeline.Crowd{{Addr: rapid.SampledFrom(append(peers(*in), netip.Addr{})).Draw(t, "who begins no more")}}
	}
	in.Policy, in.GatewayBare = p, rapid.IntRange(0, 15).Draw(t, "the gateway is bare") == 7
}

func guards(in pipeline.Input, device map[string]uint32, p Packet) bool {
	return slices.ContainsFunc(in.Ports, func(port pipeline.Port) bool {
		return port.Guarded && (slices.Contains(port.Addrs, p.Dst) || device[port.Endpoint] == p.Ifindex && p.Ifindex != 0)
	})
}

// tuple is struct tuple of bpf/fastpath.c, in no order of its own: the lower end first.
type tuple struct {
	ends  [2]netip.AddrPort
	proto byte
}

func keyOfFrame(frame []byte) tuple {
	src, dst := addresses(frame)
	a, b := netip.AddrPortFrom(src, port(frame, 0)), netip.AddrPortFrom(dst, port(frame, 2))
	proto := frame[23]
	if src.Is6() {
		proto = frame[20]
	}
	if b.Compare(a) < 0 {
		a, b = b, a
	}
	return tuple{[2]netip.AddrPort{a, b}, proto}
}

func port(frame []byte, at int) uint16 {
	if frame[12] == 8 {
		return binary.BigEndian.Uint16(frame[34+at:])
	}
	return binary.BigEndian.Uint16(frame[54+at:])
}

// connection is what the switch's connection tracking knows of one.
type connection struct {
	src, dst netip.Addr
	from, to uint16
	mark     string
	label    string
	rules    [2]uint32
	own      bool // the switch knows nothing of it
	handed   bool // it knows it, and has not said so yet
	grants   bool // its first packet was marked
}

func (c *connection) state(p Packet) string {
	if p.Src == c.src {
		return "trk,est"
	}
	return "trk,est,rpl"
}

func (c *connection) known(k tuple) string {
	nw := "ct_nw_"
	if c.src.Is6() {
		nw = "ct_ipv6_"
	}
	text := fmt.Sprintf(",ct_state=0x21,%ssrc=%s,%sdst=%s,ct_nw_proto=%d,ct_tp_src=%d,ct_tp_dst=%d", nw, c.src, nw, c.dst, k.proto, c.from, c.to)
	if c.mark != "" {
		text += ",ct_mark=" + c.mark
	}
	if c.label != "" {
		text += ",ct_label=" + c.label
	}
	return text
}

var committed = regexp.MustCompile(`ct\(commit,zone=26486(?:,mark=(0|0x[0-9a-f]+)/0xffffffff)?(?:,label=(0|0x[0-9a-f]+)/(0x[0-9a-f]+))?`)

// flowOf is a frame of TCP or UDP as ofproto/trace takes it where connection tracking knows something.
func flowOf(frame []byte, known string) string {
	k := keyOfFrame(frame)
	src, dst := addresses(frame)
	proto, nw, flags := map[byte]string{6: "tcp", 17: "udp", 1: "icmp", 58: "icmp"}[k.proto], "nw_", 34+13
	six := ""
	if src.Is6() {
		nw, six, flags = "ipv6_", "6", 54+13
	}
	text := fmt.Sprintf("%s%s%s,dl_src=%s,dl_dst=%s,%ssrc=%s,%sdst=%s,nw_ttl=64", proto, six, known, net.HardwareAddr(frame[6:12]), net.HardwareAddr(frame[:6]), nw, src, nw, dst)
	if proto == "icmp" {
		return text + fmt.Sprintf(",icmp%[1]s_type=%[2]d,icmp%[1]s_code=0", strings.Replace(six, "6", "v6", 1), port(frame, 0)>>8)
	}
	text += fmt.Sprintf(",%[1]s_src=%[2]d,%[1]s_dst=%[3]d", proto, port(frame, 0), port(frame, 2))
	if k.proto == 6 {
		text += fmt.Sprintf(",tcp_flags=%#x", frame[flags])
	}
	return text
}

// commit takes what the switch notes in a trace; false: it notes nothing of this connection.
func (c *connection) commit(t *rapid.T, trace string) bool {
	m := committed.FindStringSubmatch(trace)
	if m == nil {
		return c.mark != ""
	}
	if c.mark = m[1]; c.mark == "" {
		c.mark = "0"
	}
	if m[3] != "" {
		value, mask := labelOf(t, m[2]), labelOf(t, m[3])
		for i := range c.rules {
			if mask[i] != 0 {
				c.rules[i] = value[i]
			}
		}
		c.label = fmt.Sprintf("%#x", uint64(c.rules[1])<<32|uint64(c.rules[0]))
	}
	return true
}

// labelOf is the low half of a label: the rule for egress, and that for ingress.
func labelOf(t *rapid.T, text string) [2]uint32 {
	if len(text) > 18 {
		text = "0x" + text[len(text)-16:]
	}
	v, err := strconv.ParseUint(text, 0, 64)
	must(t, err)
	return [2]uint32{uint32(v), uint32(v >> 32)}
}

// packet is one more of a connection, from one of its ends.
func (c *connection) packet(t *rapid.T, in pipeline.Input, device map[string]uint32, k tuple) (Packet, []byte) {
	src, dst, from, to := c.src, c.dst, c.from, c.to
	if rapid.Bool().Draw(t, "back") {
		src, dst, from, to = dst, src, to, from
	}
	p := Packet{Src: src, Dst: dst, Gateway: true}
	longest := -1
	for _, r := range in.Routes {
		if r.VTEP.IsValid() && r.Prefix.Contains(src) && r.Prefix.Bits() > longest {
			longest, p.From, p.VNID, p.Gateway = r.Prefix.Bits(), r.VTEP, r.VNID, false
		}
	}
	for _, port := range in.Ports {
		if slices.Contains(port.Addrs, src) {
			p = Packet{Src: src, Dst: dst, Ifindex: device[port.Endpoint], MAC: [6]byte(port.MAC)}
		}
	}
	return p, segmentOf(t, p, k.proto, from, to)
}

// draw draws a packet: of a connection that is known, most of them.
func (w *judges) draw(t *rapid.T, in pipeline.Input, tracked map[tuple]*connection) (Packet, []byte) {
	kind := rapid.IntRange(0, 5).Draw(t, "of a known connection")
	keys := slices.SortedFunc(maps.Keys(tracked), func(a, b tuple) int {
		return bytes.Compare(fmt.Append(nil, a), fmt.Append(nil, b))
	})
	if owned := slices.DeleteFunc(slices.Clone(keys), func(k tuple) bool { return !tracked[k].own }); len(owned) > 0 && rapid.Bool().Draw(t, "of one that the switch does not know") {
		k := rapid.SampledFrom(owned).Draw(t, "connection")
		return tracked[k].packet(t, in, w.device, k)
	}
	if by := slices.DeleteFunc(slices.Clone(keys), func(k tuple) bool { return k.proto != 6 || !tracked[k].grants }); len(by) > 0 && kind > 1 { // another one of the same two
		outside := func(a netip.Addr) bool {
			return !slices.ContainsFunc(in.Ports, func(p pipeline.Port) bool { return slices.Contains(p.Addrs, a) }) &&
				!slices.ContainsFunc(in.Routes, func(r pipeline.Route) bool { return r.Prefix.Contains(a) })
		}
		if gated := slices.DeleteFunc(slices.Clone(by), func(k tuple) bool { return !outside(tracked[k].src) && !outside(tracked[k].dst) }); len(gated) > 0 && rapid.Bool().Draw(t, "with the outside") {
			by = gated
		}
		k := rapid.SampledFrom(by).Draw(t, "like")
		c := *tracked[k]
		p, _ := c.packet(t, in, w.device, k)
		for p.Src != c.src {
			p, _ = c.packet(t, in, w.device, k)
		}
		return p, segmentOf(t, p, 6, uint16(rapid.IntRange(40000, 40003).Draw(t, "port")), c.to, 2)
	}
	if len(tracked) > 0 && kind > 0 {
		k := rapid.SampledFrom(keys).Draw(t, "connection")
		return tracked[k].packet(t, in, w.device, k)
	}
	p := packets(in, w.device).Filter(func(p Packet) bool {
		return !p.Dst.IsMulticast() && !p.Dst.IsLinkLocalUnicast() && !p.Src.IsLinkLocalUnicast() && !p.Dst.IsLoopback()
	}).Draw(t, "packet")
	proto := rapid.SampledFrom([]byte{6, 6, 17}).Draw(t, "protocol")
	from, to := rapid.SampledFrom([]uint16{40000, 40001, 80}).Draw(t, "from"), map[byte]uint16{6: 80, 17: 53}[proto]
	if proto == 6 && rapid.IntRange(0, 3).Draw(t, "begins") > 0 {
		return p, segmentOf(t, p, proto, from, to, 2)
	}
	return p, segmentOf(t, p, proto, from, to)
}

// segmentOf is a frame of TCP or UDP.
func segmentOf(t *rapid.T, p Packet, proto byte, from, to uint16, flags ...byte) []byte {
	l4 := make([]byte, 20+rapid.SampledFrom([]int{0, 0, 5}).Draw(t, "payload"))
	if proto == 17 {
		l4 = l4[:8+len(l4)-20]
		binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
	} else if len(flags) > 0 {
		l4[12], l4[13] = 0x50, flags[0]
	} else {
		l4[12], l4[13] = 0x50, rapid.SampledFrom([]byte{0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x18, 2, 0x12, 0x11, 4, 0}).Draw(t, "flags")
	}
	binary.BigEndian.PutUint16(l4, from)
	binary.BigEndian.PutUint16(l4[2:], to)
	frame := slices.Concat(pipeline.RouterMAC, p.MAC[:])
	if p.Src.Is4() {
		ip := make([]byte, 20)
		ip[0], ip[8], ip[9] = 0x45, 64, proto
		binary.BigEndian.PutUint16(ip[2:], uint16(20+len(l4)))
		src, dst := p.Src.As4(), p.Dst.As4()
		copy(ip[12:], src[:])
		copy(ip[16:], dst[:])
		return slices.Concat(frame, []byte{8, 0}, ip, l4)
	}
	ip := make([]byte, 40)
	ip[0], ip[6], ip[7] = 0x60, proto, 64
	binary.BigEndian.PutUint16(ip[4:], uint16(len(l4)))
	src, dst := p.Src.As16(), p.Dst.As16()
	copy(ip[8:], src[:])
	copy(ip[24:], dst[:])
	return slices.Concat(frame, []byte{0x86, 0xdd}, ip, l4)
}

// note has the programs behind the switch see a frame as it leaves.
func (w *judges) note(t *rapid.T, to Verdict, frame, macs []byte) {
	marked := slices.Concat(macs, frame[12:])
	prog, want := w.objs.GvNoteLocal, slices.Concat(macs[:6], pipeline.RouterMAC)
	if to.VTEP.IsValid() {
		prog, want = w.objs.GvNoteTunnel, slices.Concat([]byte{2, 1}, macs[2:6], []byte{2, 0, 0}, macs[9:])
	}
	run := &ebpf.RunOptions{Data: marked, DataOut: make([]byte, len(marked)+256), Context: [48]uint32{}}
	ret, err := prog.Run(run)
	must(t, err)
	if ret != ^uint32(0) || !bytes.Equal(run.DataOut, slices.Concat(want, frame[12:])) {
		t.Fatalf("%x with the mark %x goes on (%d) as %x", frame, macs, ret, run.DataOut)
	}
}

// countedBut is counted, but of the flows that are of addresses between conntrack and egress-policy.
func (w *judges) countedBut(t *rapid.T, tally pipeline.Tally, trace string, bytes int, first bool) {
	text := visited.ReplaceAllStringFunc(trace, func(line string) string {
		table, _ := strconv.Atoi(visited.FindStringSubmatch(line)[1])
		switch s := pipeline.Stage(table); {
		case s == pipeline.Conntrack, s >= pipeline.EgressEpoch && s <= pipeline.Callee:
			return ""
		case first && (s == pipeline.EgressPolicy || s == pipeline.EgressRules || s == pipeline.IngressPolicy || s == pipeline.IngressRules):
			return ""
		}
		return line
	})
	w.counted(t, tally, text, bytes)
}

func forget(t *rapid.T, m *ebpf.Map) {
	var key, value []byte
	var all [][]byte
	it := m.Iterate()
	for it.Next(&key, &value) {
		all = append(all, bytes.Clone(key))
	}
	must(t, it.Err())
	for _, k := range all {
		must(t, m.Delete(k))
	}
}

// TestSettledLife: what is noted counts for a while, and only as it was noted.
func TestSettledLife(t *testing.T) {
	w := newJudges(t)
	in := w.called(t, 0, "b")
	there := Packet{Src: addrs("10.128.0.3")[0], Dst: addrs("10.128.0.2")[0], Ifindex: w.device["b"], MAC: [6]byte(macs["b"])}
	back := Packet{Src: there.Dst, Dst: there.Src, Ifindex: w.device["a"], MAC: [6]byte(macs["a"])}
	frame := func(p Packet, flags byte, payload int) []byte {
		from, to := uint16(40000), uint16(80)
		if p == back {
			from, to = to, from
		}
		l4 := make([]byte, 20+payload)
		binary.BigEndian.PutUint16(l4, from)
		binary.BigEndian.PutUint16(l4[2:], to)
		l4[12], l4[13] = 0x50, flags
		ip := make([]byte, 20)
		ip[0], ip[8], ip[9] = 0x45, 64, 6
		binary.BigEndian.PutUint16(ip[2:], uint16(20+len(l4)))
		copy(ip[12:], p.Src.AsSlice())
		copy(ip[16:], p.Dst.AsSlice())
		return slices.Concat(pipeline.RouterMAC, p.MAC[:], []byte{8, 0}, ip, l4)
	}
	const ack, data = 0x10, 1
	rapid.Check(t, func(rt *rapid.T) {
		carried := func(p Packet, flags byte, payload int) bool {
			v, _, _ := w.program(rt, p, frame(p, flags, payload))
			return v != Verdict{}
		}
		note := func() {
			must(rt, w.tables.void(in))
			w.note(rt, Verdict{}, frame(there, ack, 0), slices.Concat(macs["a"], []byte{3, 300 >> 8, 300 & 0xff, 0, 0x10, 2}))
		}
		// edit changes the entry, its check with it or not.
		type entry struct{ What, Noted, Check, Visited uint64 }
		edit := func(change func(*entry)) {
			var key []byte
			var e entry
			it := w.objs.GvSettled.Iterate()
			if !it.Next(&key, &e) {
				rt.Fatal("nothing is noted", it.Err())
			}
			change(&e)
			must(rt, w.objs.GvSettled.Put(key, e))
		}
		note()
		var what uint64
		edit(func(e *entry) { what = e.What })
		if what != 300|2<<16|1<<32 {
			rt.Fatalf("%#x is noted", what)
		}
		for name, odd := range map[string]func(){
			"another's generation": func() { edit(func(e *entry) { e.What++ }) },
			"other slots":          func() { edit(func(e *entry) { e.What ^= 1 << 17 }) },
			"another moment":       func() { edit(func(e *entry) { e.Noted += uint64(rapid.IntRange(1, 1<<20).Draw(rt, "ns")) }) },
			"the next generation":  func() { next := in; next.Generation++; must(rt, w.tables.void(next)) },
			"no generation":        func() { must(rt, w.objs.GvGeneration.Put(uint32(0), uint32(0))); w.tables.known.generation = 0 },
			"nothing":              func() { forget(rt, w.objs.GvSettled) },
			"the end of a connection": func() {
				if carried(there, rapid.SampledFrom([]byte{0x11, 0x04, 0x14, 0x02, 0x12}).Draw(rt, "flags"), 0) {
					rt.Fatal("an end, or a beginning, is carried")
				}
			},
		} {
			note()
			if !carried(there, ack, data) || !carried(back, ack, 0) || carried(there, 0, data) {
				rt.Fatal("what is noted is not carried, or without ACK")
			}
			if odd(); carried(there, ack, data) || carried(back, ack, data) {
				rt.Fatalf("with %s it is carried", name)
			}
		}
		// As it gets old, packets visit the switch, acknowledgements first, one at a time.
		aged := func(age time.Duration) {
			note()
			edit(func(e *entry) { e.Noted -= uint64(age) })
			must(rt, w.objs.GvSettled.Put(mustKey(rt, w.objs.GvSettled), w.sealed(rt)))
		}
		if aged(6 * time.Second); carried(back, ack, 0) || !carried(back, ack, 0) || !carried(there, ack, data) {
			rt.Fatal("an acknowledgement does not visit the switch, or more than one do")
		}
		if aged(9 * time.Second); carried(there, ack, data) || !carried(there, ack, data) {
			rt.Fatal("no packet visits the switch, or more than one do")
		}
		if aged(11 * time.Second); carried(there, ack, data) || carried(back, ack, 0) {
			rt.Fatal("what is old is carried")
		}
	})
}

func mustKey(t *rapid.T, m *ebpf.Map) (key []byte) {
	must(t, m.NextKey(nil, &key))
	return key
}

// sealed is the only entry with the check that it is to have.
func (w *judges) sealed(t *rapid.T) (e [4]uint64) {
	key := mustKey(t, w.objs.GvSettled)
	must(t, w.objs.GvSettled.Lookup(key, &e))
	const prime = 0x9e3779b97f4a7c15
	word := func(at int) uint64 { return uint64(binary.NativeEndian.Uint32(key[at:])) }
	sum := e[0]*prime ^ e[1]
	for i := range 4 {
		sum = (sum ^ word(4*i) ^ word(16+4*i)<<32) * prime
		sum ^= sum >> 29
	}
	sum = (sum ^ uint64(binary.NativeEndian.Uint16(key[32:])) ^ uint64(binary.NativeEndian.Uint16(key[34:]))<<16 ^ word(36)<<32) * prime
	e[2] = sum ^ sum>>32
	return e
}
