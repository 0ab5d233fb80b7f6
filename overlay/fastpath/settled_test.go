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
	by := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		in := inputs().Draw(t, "cluster")
		rules(t, &in)
		in.Generation = uint16(rapid.SampledFrom([]int{1, 2, 65534, 65535}).Draw(t, "generation"))
		forget(t, w.objs.GvSettled)
		w.tables.known, w.tables.before = known{}, nil
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
				in = w.drawn
				changed++
				continue
			case 1: // the switch notes a connection no more
				forget(t, w.objs.GvSettled)
				continue
			case 2: // other openings, which begin no generation: what is open goes on
				in = w.open(t, in)
				opened++
				continue
			}
			p, frame := w.draw(t, in, tracked)
			guarded := guards(in, w.device, p)
			w.settle(t)
			ruled := w.before
			before, err := w.tables.tally()
			must(t, err)
			got, _, out := w.program(t, p, frame)
			key := keyOfFrame(frame)
			c := tracked[key]
			if got != (Verdict{}) && guarded {
				if c == nil {
					t.Fatalf("%v is carried, and its connection is unknown", p)
				}
				want, trace, macs := w.ovsTracking(t, in, p, frame, c.known(key), "--ct-next", c.state(p))
				if got != want || !(got.Gateway || macs[6] == 3) || !unjudged.MatchString(trace) {
					t.Fatalf("%v:\n%x\nis carried to %+v; the switch says %+v, %x\n%s", p, frame, got, want, macs, trace)
				}
				if !got.Gateway && binary.BigEndian.Uint16(macs[7:]) != in.Generation {
					t.Fatalf("generation %d: %x", in.Generation, macs)
				}
				if !bytes.Equal(frame[12:], out[12:]) {
					t.Fatalf("%v: more than MAC addresses is changed", p)
				}
				after, err := w.tables.tally()
				must(t, err)
				counted := pipeline.Count{Packets: 1, Bytes: uint64(len(frame))}
				for _, r := range in.Policy.Rules {
					was, is := before.Rules[r.ID], after.Rules[r.ID]
					more := pipeline.Count{Packets: is.Packets - was.Packets, Bytes: is.Bytes - was.Bytes}
					if want := slices.Contains(c.rules[:], r.ID) && r.Slot != 0; want != (more == counted) || !want && more != (pipeline.Count{}) {
						t.Fatalf("%v: rule %d (of %v) counts %+v", p, r.ID, c.rules, more)
					}
				}
				w.before = ruled
				w.countedBut(t, after, trace, len(frame))
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
			if macs[6] == 3 && slices.ContainsFunc(in.Ports, func(port pipeline.Port) bool { return port.Bare && w.device[port.Endpoint] == want.Ifindex }) {
				t.Fatalf("%v: %x goes where nobody takes the mark off\n%s", p, macs, trace)
			}
			if c.commit(t, trace) {
				tracked[key] = c
			}
			if macs[6] == 3 {
				noted++
				notedAt[key] = opened
				w.note(t, want, frame, macs)
			}
		}
	})
	sums := fmt.Sprintf("%d packets were carried (%v), %d of them noted before the last openings, %d noted, %d stopped; rules changed %d times, openings %d, and agents were killed %d times", carried, by, over, noted, stopped, changed, opened, killed)
	t.Log(sums)
	if !testing.Short() && (carried < 150 || noted < 200 || stopped < 200 || changed < 100 || killed < 20 || over < 5 || len(by) < 5) {
		t.Error(sums + ": the test shows little")
	}
}

// unjudged is the flow that finds a connection settled.
var unjudged = regexp.MustCompile(`(?m)^ *95\. .*priority 50,`)

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
		for _, from := range g.Addrs {
			to := rapid.SampledFrom(slices.DeleteFunc(peers(in), func(a netip.Addr) bool { return !a.IsValid() || a.Is4() != from.Is4() || a == from })).Draw(t, "to")
			o := pipeline.Opening{Rule: 2 * uint32(rapid.IntRange(1, 4).Draw(t, "rule")), Priority: pipeline.PriorityNetworkPolicy, Action: pipeline.Accept, From: from, To: to, Past: rapid.Bool().Draw(t, "past"), AnyPort: rapid.Bool().Draw(t, "any port")}
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
			Ingress: rapid.IntRange(0, 3).Draw(t, "ingress") > 0, Egress: rapid.Bool().Draw(t, "egress"),
			IngressEpoch: uint16(rapid.IntRange(1, 2).Draw(t, "epoch")), EgressEpoch: uint16(rapid.IntRange(1, 2).Draw(t, "epoch")),
		})
		p.Classes = append(p.Classes, pipeline.Class{ID: uint32(1 + i), Addrs: port.Addrs})
	}
	slots := rapid.Permutation([]uint16{0, 1, 2, 255, 256, 4094, 4095, 0xa5a}).Draw(t, "slots")
	for i, n := 0, rapid.IntRange(2, 6).Draw(t, "rules"); i < n; i++ {
		r := pipeline.PolicyRule{ID: uint32(1 + i), Direction: pipeline.Direction(1 + i%2), Priority: pipeline.PriorityNetworkPolicy, Action: pipeline.Accept, Label: fmt.Sprint("rule ", i), AnyPeer: true, Slot: slots[i]}
		r.Subjects = rapid.SliceOfNDistinct(rapid.SampledFrom([]uint32{1, 2, 3, 4}), 1, 4, rapid.ID[uint32]).Draw(t, "subjects")
		if r.AnyPort = rapid.Bool().Draw(t, "any port"); !r.AnyPort {
			r.Ports = []pipeline.PortRange{{Proto: 6, From: 80, To: 80}, {Proto: 17, From: 53, To: 53}}
		}
		p.Rules = append(p.Rules, r)
	}
	in.Policy = p
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
	proto, nw, flags := map[byte]string{6: "tcp", 17: "udp"}[k.proto], "nw_", 34+13
	six := ""
	if src.Is6() {
		nw, six, flags = "ipv6_", "6", 54+13
	}
	text := fmt.Sprintf("%s%s%s,dl_src=%s,dl_dst=%s,%ssrc=%s,%sdst=%s,nw_ttl=64,%s_src=%d,%s_dst=%d", proto, six, known, net.HardwareAddr(frame[6:12]), net.HardwareAddr(frame[:6]),
		nw, src, nw, dst, proto, port(frame, 0), proto, port(frame, 2))
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
	if len(tracked) > 0 && rapid.IntRange(0, 3).Draw(t, "of a known connection") > 0 {
		keys := slices.SortedFunc(maps.Keys(tracked), func(a, b tuple) int {
			return bytes.Compare(fmt.Append(nil, a), fmt.Append(nil, b))
		})
		k := rapid.SampledFrom(keys).Draw(t, "connection")
		return tracked[k].packet(t, in, w.device, k)
	}
	p := packets(in, w.device).Filter(func(p Packet) bool {
		return !p.Dst.IsMulticast() && !p.Dst.IsLinkLocalUnicast() && !p.Src.IsLinkLocalUnicast() && !p.Dst.IsLoopback()
	}).Draw(t, "packet")
	proto := rapid.SampledFrom([]byte{6, 17}).Draw(t, "protocol")
	return p, segmentOf(t, p, proto, rapid.SampledFrom([]uint16{40000, 40001, 80}).Draw(t, "from"), map[byte]uint16{6: 80, 17: 53}[proto])
}

// segmentOf is a frame of TCP or UDP.
func segmentOf(t *rapid.T, p Packet, proto byte, from, to uint16) []byte {
	l4 := make([]byte, 20+rapid.SampledFrom([]int{0, 0, 5}).Draw(t, "payload"))
	if proto == 17 {
		l4 = l4[:8+len(l4)-20]
		binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
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
func (w *judges) countedBut(t *rapid.T, tally pipeline.Tally, trace string, bytes int) {
	text := visited.ReplaceAllStringFunc(trace, func(line string) string {
		table, _ := strconv.Atoi(visited.FindStringSubmatch(line)[1])
		switch s := pipeline.Stage(table); {
		case s == pipeline.Conntrack, s >= pipeline.EgressEpoch && s <= pipeline.DestClass:
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
	in := pipeline.Input{
		Round: pipeline.Round, Tunnel: pipeline.HeaderBits, TunnelPort: 1, Generation: 300,
		Subnets: []pipeline.Subnet{{Prefix: prefixes("10.128.0.0/24")[0], VNID: 5}},
		Ports: []pipeline.Port{
			{OFPort: 3, MAC: macs["a"], Addrs: addrs("10.128.0.2"), VNID: 5, Endpoint: "a", Guarded: true},
			{OFPort: 4, MAC: macs["b"], Addrs: addrs("10.128.0.3"), VNID: 5, Endpoint: "b", Plain: true},
		},
	}
	must(t, w.tables.void(in))
	must(t, w.tables.write(Compile(in, w.device)))
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
