package fastpath

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"pgregory.net/rapid"

	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// TestOwnLife: a connection begins without the switch only by what was granted, as it was granted, to the same port by the same
// caller; and what the switch is told of one nobody else can say.
func TestOwnLife(t *testing.T) {
	w := newJudges(t)
	in := w.called(t, 0x9abcdef0, "b")
	must(t, w.objs.GvGeneration.Put(secretPlace, in.Secret))
	there := Packet{Src: addrs("10.128.0.3")[0], Dst: addrs("10.128.0.2")[0], Ifindex: w.device["b"], MAC: [6]byte(macs["b"])}
	back := Packet{Src: there.Dst, Dst: there.Src, Ifindex: w.device["a"], MAC: [6]byte(macs["a"])}
	const caller, called, syn, synAck, ack, fin, rst = 40001, 80, 2, 0x12, 0x10, 0x11, 4
	type grant = grantValue
	rapid.Check(t, func(rt *rapid.T) {
		send := func(p Packet, from, to uint16, flags byte) (bool, []byte) {
			v, _, out := w.program(rt, p, segmentOf(rt, p, 6, from, to, flags))
			return v != Verdict{}, out
		}
		carried := func(p Packet, from, to uint16, flags byte) bool {
			is, _ := send(p, from, to, flags)
			return is
		}
		fresh := func() {
			for _, m := range []*ebpf.Map{w.objs.GvSettled, w.objs.GvGranted, w.objs.GvOwn} {
				forget(rt, m)
			}
			must(rt, w.tables.void(in))
			w.note(rt, Verdict{}, segmentOf(rt, there, 6, 40000, called, syn), slices.Concat(macs["a"], []byte{3, 300 >> 8, 300 & 0xff, 0, 0x10, 2}))
		}
		edit := func(change func(*grant)) (key []byte, g grant) {
			key = mustKey(rt, w.objs.GvGranted)
			must(rt, w.objs.GvGranted.Lookup(key, &g))
			change(&g)
			must(rt, w.objs.GvGranted.Put(key, g))
			return key, g
		}
		later := func() { next := in; next.Generation++; must(rt, w.tables.void(next)) }
		odd := map[string]func(){
			"another generation": func() { edit(func(g *grant) { g.What++ }) },
			"other slots":        func() { edit(func(g *grant) { g.What ^= 1 << 17 }) },
			"another moment":     func() { edit(func(g *grant) { g.Noted += uint64(rapid.IntRange(1, 1<<20).Draw(rt, "ns")) }) },
			"another check":      func() { edit(func(g *grant) { g.Check ^= 1 << rapid.IntRange(0, 63).Draw(rt, "bit") }) },
			"rules of now":       later,
			"no generation":      func() { must(rt, w.objs.GvGeneration.Put(uint32(0), uint32(0))); w.tables.known.generation = 0 },
			"nothing":            func() { forget(rt, w.objs.GvGranted) },
		}
		for _, name := range slices.Sorted(maps.Keys(odd)) {
			if fresh(); !carried(there, caller, called, syn) || !carried(back, called, caller, synAck) || !carried(there, caller, called, ack) {
				rt.Fatal("what is granted does not begin")
			}
			if fresh(); carried(back, called, caller, syn) || carried(back, caller, called, syn) || carried(there, caller, called, ack) || carried(back, called, caller, synAck) || carried(there, caller, called, rst) {
				rt.Fatal("what is not granted begins, or goes on and never began")
			}
			flags := rapid.SampledFrom([]byte{0, 1, 3, 6, 8, 0xa, 0x22, fin, rst}).Draw(rt, "flags")
			if carried(there, caller, called, flags) {
				rt.Fatalf("a connection begins by %#x", flags)
			}
			if odd[name](); carried(there, caller, called, syn) {
				rt.Fatalf("with %s a connection begins", name)
			}
		}
		// The grant of one port at the place of another, as when the kernel gives the element to that.
		fresh()
		key, g := edit(func(*grant) {})
		key = bytes.Clone(key)
		key[33]++ // the port
		must(rt, w.objs.GvGranted.Put(key, g))
		if carried(there, caller, called+1, syn) {
			rt.Fatal("a connection begins to a port by what was granted for another")
		}
		// A connection that another one's place was given to.
		var was ownKey
		var v ownValue
		fresh()
		carried(there, caller, called, syn)
		it := w.objs.GvOwn.Iterate()
		if !it.Next(&was, &v) {
			rt.Fatal("nothing began", it.Err())
		}
		v.What ^= 1 << rapid.SampledFrom([]int{0, 5, 16, 33, 48}).Draw(rt, "bit")
		must(rt, w.objs.GvOwn.Put(was, v))
		if carried(there, caller, called, ack) || carried(back, called, caller, ack) {
			rt.Fatal("an entry that is not its own has a connection go on")
		}
		// A port that is used again: the switch sees it begin if it may know the connection of before.
		settle := func() {
			w.note(rt, Verdict{}, segmentOf(rt, there, 6, caller, called, ack), slices.Concat(macs["a"], []byte{3, 300 >> 8, 300 & 0xff, 0, 0x10, 2}))
		}
		fresh()
		settle()
		if end := rapid.SampledFrom([]byte{fin, rst}).Draw(rt, "end"); !carried(there, caller, called, ack) || carried(back, called, caller, end) || carried(there, caller, called, syn) || carried(there, caller, called, syn) {
			rt.Fatal("what the switch has seen end begins without it")
		}
		fresh()
		for range 3 { // what it has not seen does not
			if !carried(there, caller, called, syn) || !carried(back, called, caller, fin) || !carried(there, caller, called, fin) || !carried(back, called, caller, ack) {
				rt.Fatal("what has ended does not begin again")
			}
		}
		// It has begun to end, and begins anew.
		if !carried(there, caller, called, syn) || !carried(back, called, caller, fin) || carried(there, caller, called, syn) {
			rt.Fatal("what ends begins, and is the same")
		}
		// It is the switch's when that has let a packet of the caller's through that came to it after an answer.
		fresh()
		carried(there, caller, called, syn)
		carried(back, called, caller, synAck)
		later()
		has := func() int { return len(own(rt, w)) }
		heard := func(p Packet, from, to uint16) { // the switch has let it through
			w.note(rt, Verdict{}, segmentOf(rt, p, 6, from, to, ack), slices.Concat(macs["a"], []byte{3, 301 >> 8, 301 & 0xff, 0, 0x10, 2}))
		}
		for i := 0; i < 3; {
			switch step := rapid.SampledFrom([]string{"caller", "callee"}).Draw(rt, "who"); {
			case has() != 1:
				rt.Fatalf("after %d of the three packets it is the switch's", i)
			case step == "caller":
				carried(there, caller, called, ack)
				heard(there, caller, called)
				if i != 1 {
					i++
				}
			default:
				carried(back, called, caller, ack)
				heard(back, called, caller)
				if i == 1 || i == 0 {
					i = 2
				}
			}
		}
		if has() != 0 || !carried(back, called, caller, ack) || !carried(there, caller, called, ack) {
			rt.Fatal("it was handed over, and is not the switch's")
		}
		must(rt, w.tables.void(in))
		// What the switch is told when the rules are others: who called, and of nothing else.
		fresh()
		carried(there, caller, called, syn)
		carried(back, called, caller, synAck)
		later()
		for _, end := range []struct {
			p        Packet
			from, to uint16
			hint     pipeline.Hint
		}{{there, caller, called, pipeline.Call}, {back, called, caller, pipeline.Answer}} {
			if is, out := send(end.p, end.from, end.to, ack); is || !bytes.Equal(out[:6], end.hint.MAC(in.Secret)) {
				rt.Fatalf("a connection by rules of before is carried (%v), or the switch is told %x", is, out[:6])
			}
			frame := segmentOf(rt, end.p, 6, end.from+1, end.to, ack)
			copy(frame, end.hint.MAC(in.Secret))
			if v, _, out := w.program(rt, end.p, frame); v != (Verdict{}) || !bytes.Equal(out[:6], pipeline.RouterMAC) {
				rt.Fatalf("a container says itself who called: %x", out[:6])
			}
		}
	})
}

// TestOwnAges: a connection that lives visits the switch, its caller first and its end as well, a packet of an end at a time; also where it
// comes by the NIC, which leaves the visits to the device of the encapsulation.
func TestOwnAges(t *testing.T) {
	w := newJudges(t)
	from := addrs("198.51.100.7")[0]
	in := pipeline.Input{
		Round: pipeline.Round, Tunnel: pipeline.HeaderBits, TunnelPort: 1, Generation: 300, Secret: 0x9abcdef0, VTEP: vtep,
		Subnets: []pipeline.Subnet{{Prefix: prefixes("10.128.0.0/24")[0], VNID: 5}},
		VTEPs:   []pipeline.VTEP{{Addr: from, Index: 1}},
		Routes:  []pipeline.Route{{Prefix: prefixes("10.128.1.0/24")[0], VTEP: from, VNID: 5}},
		Ports:   []pipeline.Port{{OFPort: 3, MAC: macs["a"], Addrs: addrs("10.128.0.2"), VNID: 5, Endpoint: "a", Guarded: true}},
	}
	must(t, w.tables.void(in))
	must(t, w.tables.write(Compile(in, w.device)))
	must(t, w.objs.GvGeneration.Put(secretPlace, in.Secret))
	there := Packet{Src: addrs("10.128.1.3")[0], Dst: addrs("10.128.0.2")[0], From: from, VNID: 5, MAC: [6]byte(pipeline.RouterMAC)}
	back := Packet{Src: there.Dst, Dst: there.Src, Ifindex: w.device["a"], MAC: [6]byte(macs["a"])}
	const caller, called, syn, synAck, ack, fin = 40001, 80, 2, 0x12, 0x10, 0x11
	rapid.Check(t, func(rt *rapid.T) {
		frame := func(p Packet, flags byte) []byte {
			f, t := uint16(caller), uint16(called)
			if p == back {
				f, t = t, f
			}
			for {
				if frame := segmentOf(rt, p, 6, f, t, flags); len(frame) == 54 {
					return frame
				}
			}
		}
		carried := func(p Packet, flags byte) bool {
			v, _, _ := w.program(rt, p, frame(p, flags))
			return v != Verdict{}
		}
		nic := func(flags byte) bool {
			v, _ := w.underlay(rt, there, encapsulated(frame(there, flags), from, vtep, 5, 0))
			return v != Verdict{}
		}
		begin := func(age time.Duration) {
			for _, m := range []*ebpf.Map{w.objs.GvSettled, w.objs.GvGranted, w.objs.GvOwn} {
				forget(rt, m)
			}
			w.note(rt, Verdict{}, segmentOf(rt, there, 6, 40000, called, syn), slices.Concat(macs["a"], []byte{3, 300 >> 8, 300 & 0xff, 0, 0x10, 2}))
			if !nic(syn) || !carried(back, synAck) || !nic(ack) {
				rt.Fatal("what is granted does not begin")
			}
			for k, v := range own(rt, w) {
				v.Born -= uint64(age)
				v.Check = mixed(k, v.What, v.Born)
				must(rt, w.objs.GvOwn.Put(k, v))
			}
		}
		if begin(4 * time.Second); !nic(ack) || !carried(back, ack) || !carried(there, ack) {
			rt.Fatal("what is young is not carried")
		}
		begin(6 * time.Second)
		if !carried(back, ack) {
			rt.Fatal("the callee's packet visits the switch before the caller's")
		}
		spent := nic(ack) // by the first of two
		if spent = nic(ack) || spent; spent || carried(there, ack) || !carried(there, ack) || !nic(ack) {
			rt.Fatal("no packet of the caller's visits the switch, or the NIC has it counted, or more than one do")
		}
		if carried(back, ack) || !carried(back, ack) {
			rt.Fatal("no packet of the callee's visits the switch, or more than one do")
		}
		if nic(fin) || carried(there, fin) || carried(back, fin) || len(own(rt, w)) != 1 {
			rt.Fatal("the end of a connection that the switch may know does not come to it, or nobody knows any more who called")
		}
		if carried(there, ack) || carried(back, ack) {
			rt.Fatal("the last word about such an end does not come to the switch")
		}
		if forget(rt, w.objs.GvOwn); nic(syn) || carried(there, syn) {
			rt.Fatal("of ports whose connection the switch may know another one begins without it")
		}
		if begin(4 * time.Second); !nic(fin) || !carried(back, fin) || len(own(rt, w)) != 0 {
			rt.Fatal("the end of a connection that it cannot know comes to the switch")
		}
		must(rt, w.objs.GvGeneration.Put(currentPlace, uint32(in.Generation)+1))
		for p, hint := range map[Packet]pipeline.Hint{there: pipeline.Call, back: pipeline.Answer} {
			if _, _, out := w.program(rt, p, frame(p, ack)); !bytes.HasPrefix(out, hint.MAC(in.Secret)) {
				rt.Fatalf("nobody says any more who called in what has ended: %x", out[:6])
			}
		}
		must(rt, w.objs.GvGeneration.Put(currentPlace, uint32(in.Generation)))
	})
}

// mixed is mix of bpf/fastpath.c.
func mixed(k ownKey, what, noted uint64) uint64 {
	const prime = 0x9e3779b97f4a7c15
	word := func(a address, at int) uint64 { return uint64(binary.NativeEndian.Uint32(a[4*at:])) }
	sum := what*prime ^ noted
	for i := range 4 {
		sum = (sum ^ word(k.Ends[0], i) ^ word(k.Ends[1], i)<<32) * prime
		sum ^= sum >> 29
	}
	port := func(i int) uint64 { return uint64(binary.NativeEndian.Uint16(k.Ports[i][:])) }
	sum = (sum ^ port(0) ^ port(1)<<16 ^ uint64(k.Protocol)<<32) * prime
	return sum ^ sum>>32
}

func own(t *rapid.T, w *judges) map[ownKey]ownValue {
	list, err := batch[ownKey, ownValue](w.objs.GvOwn)
	must(t, err)
	return list
}

// TestOwnSeats: a greedy caller leaves room for others, who leave room in turn; and what nobody answers, and what is of an address
// that is gone, makes room again.
func TestOwnSeats(t *testing.T) {
	w := newJudges(t)
	in := w.called(t, 0x9abcdef0, "b", "c")
	must(t, w.objs.GvGeneration.Put(secretPlace, in.Secret))
	const syn, rst = 2, 4
	frame := func(from int, source uint16, flags byte) []byte {
		p := in.Ports[from]
		l4 := make([]byte, 20)
		binary.BigEndian.PutUint16(l4, source)
		l4[3], l4[12], l4[13] = 80, 0x50, flags
		ip := make([]byte, 20)
		ip[0], ip[3], ip[8], ip[9] = 0x45, 40, 64, 6
		copy(ip[12:], p.Addrs[0].AsSlice())
		copy(ip[16:], in.Ports[0].Addrs[0].AsSlice())
		return slices.Concat(pipeline.RouterMAC, p.MAC, []byte{8, 0}, ip, l4)
	}
	carried := func(from int, source uint16, flags byte) bool {
		data, skb := frame(from, source, flags), [48]uint32{10: w.device[in.Ports[from].Endpoint]}
		ret, err := w.objs.GvEndpoint.Run(&ebpf.RunOptions{Data: data, DataOut: make([]byte, len(data)+256), Context: skb})
		must(t, err)
		return ret != ^uint32(0)
	}
	grant := func(from int) {
		data := frame(from, 1, syn)
		copy(data[6:], []byte{3, 300 >> 8, 300 & 0xff, 0, 0x10, 2})
		_, err := w.objs.GvNoteLocal.Run(&ebpf.RunOptions{Data: data, DataOut: make([]byte, len(data)+256), Context: [48]uint32{}})
		must(t, err)
	}
	begun := func(from, tries int) (n int) {
		grant(from)
		for i := range tries {
			if carried(from, uint16(20000+i), syn) {
				n++
			}
		}
		return n
	}
	const all = 32768
	if n := begun(1, 12000); n < all/3-1 || n > all/3+1 {
		t.Errorf("a caller begins %d connections without the switch, of %d", n, all)
	}
	if n := begun(2, 12000); n < all*2/9-2 || n > all*2/9+2 {
		t.Errorf("beside a greedy one another one begins %d", n)
	}
	must(t, w.tables.sweep(clock()))
	if w.tables.refused == 0 {
		t.Error("nobody is said to have no room")
	}
	carried(2, 20000, rst)
	if !carried(2, 40000, syn) || carried(2, 40001, syn) {
		t.Error("where one connection has ended none begins, or more than one do")
	}
	must(t, w.tables.forget(in.Ports[1].Addrs))
	if n := begun(2, 12000); n < all/3-all*2/9-2 {
		t.Errorf("without the greedy one another one begins %d more", n)
	}
	has, err := w.tables.take(func(ownKey, ownValue) bool { return false })
	must(t, err)
	if n := has[ownShares]; n < all/3-1 || n > all/3+1 {
		t.Errorf("one caller alone has %d", n)
	}
	must(t, w.tables.put(w.tables.swept, uint32(ownShares), uint32(5))) // as an agent leaves it that is killed in between
	must(t, w.tables.sweep(clock()+ownUnheard+2*time.Second))
	if n := begun(1, 12000); n < all/3-1 || n > all/3+1 {
		t.Errorf("when all is forgotten that nobody has answered a caller begins %d", n)
	}
	must(t, w.tables.ungrant())
	if has, err = w.tables.take(func(ownKey, ownValue) bool { return false }); err != nil || has[ownShares] != 0 || carried(1, 40000, syn) {
		t.Error("what has begun is there still, or begins", has, err)
	}
	// Where an agent was killed that had begun to let numbers of generations begin again, the next one goes on with it.
	if n := begun(1, 10); n != 10 {
		t.Errorf("%d of 10 begin", n)
	}
	must(t, w.objs.GvGeneration.Put(currentPlace, uint32(0)))
	w.tables.known = known{}
	in.Generation = 5
	must(t, w.tables.void(in))
	if has, err = w.tables.take(func(ownKey, ownValue) bool { return false }); err != nil || has[ownShares] != 0 {
		t.Error("what has begun long ago is there, though numbers begin again", has, err)
	}
}

// TestRestsBeforeAGenerationEnds: what has begun without the switch is answered before the rules change, and meanwhile nothing begins;
// where nothing has begun since, nobody waits. An agent that is killed then leaves the switch all beginnings.
func TestRestsBeforeAGenerationEnds(t *testing.T) {
	w := newJudges(t)
	in := w.called(t, 0x9abcdef0, "b")
	must(t, w.objs.GvGeneration.Put(secretPlace, in.Secret))
	must(t, w.tables.void(in))
	const syn, ack = 2, 16
	carried := func(from, to int, source, dest uint16, flags byte) bool {
		p := in.Ports[from]
		l4 := make([]byte, 20)
		binary.BigEndian.PutUint16(l4, source)
		binary.BigEndian.PutUint16(l4[2:], dest)
		l4[12], l4[13] = 0x50, flags
		ip := make([]byte, 20)
		ip[0], ip[3], ip[8], ip[9] = 0x45, 40, 64, 6
		copy(ip[12:], p.Addrs[0].AsSlice())
		copy(ip[16:], in.Ports[to].Addrs[0].AsSlice())
		data := slices.Concat(pipeline.RouterMAC, p.MAC, []byte{8, 0}, ip, l4)
		ret, err := w.objs.GvEndpoint.Run(&ebpf.RunOptions{Data: data, DataOut: make([]byte, len(data)+256), Context: [48]uint32{10: w.device[p.Endpoint]}})
		must(t, err)
		return ret != ^uint32(0)
	}
	grant := func() {
		p := in.Ports[1]
		l4 := make([]byte, 20)
		l4[1], l4[3], l4[12], l4[13] = 1, 80, 0x50, syn
		ip := make([]byte, 20)
		ip[0], ip[3], ip[8], ip[9] = 0x45, 40, 64, 6
		copy(ip[12:], p.Addrs[0].AsSlice())
		copy(ip[16:], in.Ports[0].Addrs[0].AsSlice())
		data := slices.Concat(pipeline.RouterMAC, p.MAC, []byte{8, 0}, ip, l4)
		copy(data[6:], []byte{3, byte(in.Generation >> 8), byte(in.Generation), 0, 0x10, 2})
		_, err := w.objs.GvNoteLocal.Run(&ebpf.RunOptions{Data: data, DataOut: make([]byte, len(data)+256), Context: [48]uint32{}})
		must(t, err)
	}
	grant()
	if !carried(1, 0, 20000, 80, syn) {
		t.Fatal("nothing begins without the switch")
	}
	writes := 0
	look := func(do func()) func() error {
		writes = 0
		return func() error {
			if writes++; writes == 2 {
				do()
			}
			return nil
		}
	}
	w.tables.before = look(func() {
		if !carried(0, 1, 80, 20000, syn|ack) {
			t.Error("what has begun is not answered while the fast path rests")
		}
		if carried(1, 0, 20001, 80, syn) {
			t.Error("a connection begins while the fast path rests")
		}
	})
	in.Generation++
	must(t, w.tables.void(in))
	if writes < 2 || carried(0, 1, 80, 20000, syn|ack) {
		t.Errorf("%d writes; or by rules that are over an answer is carried", writes)
	}

	// Nothing has begun since.
	w.tables.before = look(func() {})
	in.Generation++
	must(t, w.tables.void(in))
	if writes != 1 {
		t.Errorf("%d writes where nothing has begun, want the generation alone", writes)
	}

	// Killed.
	grant()
	if !carried(1, 0, 20002, 80, syn) {
		t.Fatal("nothing begins without the switch")
	}
	w.tables.before = func() error {
		if writes++; writes == 3 {
			return errKilled
		}
		return nil
	}
	in.Generation++
	if err := w.tables.void(in); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	if carried(1, 0, 20003, 80, syn) {
		t.Error("a connection begins after an agent was killed that had the fast path rest")
	}
	w.tables.before, w.tables.known = nil, known{}
	must(t, w.tables.void(in))
	if w.tables.known.generation != uint32(in.Generation) {
		t.Errorf("the next agent has generation %d, want %d", w.tables.known.generation, in.Generation)
	}
}
