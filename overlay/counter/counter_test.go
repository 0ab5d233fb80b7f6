package counter

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// outer is the host's end of a container's veth.
const outer = "gh0123456789ab"

// datagram is a frame of UDP.
func datagram(from, to netip.Addr, sport, dport uint16, payload int) []byte {
	b := make([]byte, 12)
	if from.Is4() {
		b = append(b, 8, 0, 0x45, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(28+payload))
		b = append(b, 0, 0, 0, 0, 64, 17, 0, 0)
	} else {
		b = append(b, 0x86, 0xdd, 0x60, 0, 0, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(8+payload))
		b = append(b, 17, 64)
	}
	b = append(append(b, from.AsSlice()...), to.AsSlice()...)
	b = binary.BigEndian.AppendUint16(b, sport)
	b = binary.BigEndian.AppendUint16(b, dport)
	b = binary.BigEndian.AppendUint16(b, uint16(8+payload))
	return append(b, make([]byte, 2+payload)...)
}

// town is a host with a container behind a veth.
type town struct {
	host, container *linktest.NS
	socket          *linktest.Socket
}

func newTown(t *testing.T) *town {
	w := &town{host: linktest.New(t), container: linktest.New(t)}
	w.container.Do(func() { // it says nothing of its own
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	})
	linktest.Wire(t, outer, w.host, w.container, nil, nil)
	w.container.Do(func() { w.socket = linktest.Open(t, outer) })
	t.Cleanup(w.socket.Close)
	return w
}

func (w *town) read(t *testing.T, c *Counter) (counts map[Key]Count, lost Lost) {
	t.Helper()
	w.host.Do(func() {
		var err error
		if counts, lost, err = c.Read(); err != nil {
			t.Error(err)
		}
	})
	return counts, lost
}

// index is that of an interface of the host.
func (w *town) index(t *testing.T, name string) (index uint32) {
	t.Helper()
	w.host.Do(func() {
		i, err := net.InterfaceByName(name)
		if err != nil {
			t.Fatal(err)
		}
		index = uint32(i.Index)
	})
	return index
}

func (w *town) start(t *testing.T) *Counter {
	t.Helper()
	c := New("gv0")
	w.host.Do(func() {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

var app, db = netip.MustParseAddr("10.128.0.2"), netip.MustParseAddr("10.128.1.2")

// TestCount: what a container sends is counted exactly, in front of a program that takes all of it, wherever that
// one comes; and an agent that comes after another one loses nothing.
func TestCount(t *testing.T) {
	w := newTown(t)
	c := w.start(t)
	take := func(turn link.Turn, name string) {
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
		if err != nil {
			t.Fatal(err)
		}
		defer prog.Close()
		w.host.Do(func() {
			if err := link.AttachTC(outer, link.Ingress, turn, prog, name); err != nil {
				t.Error(err)
			}
		})
	}
	sent := uint64(0)
	v6 := [2]netip.Addr{netip.MustParseAddr("fd00::2"), netip.MustParseAddr("fd00::1:2")}
	send := func() {
		for range 100 {
			w.socket.Send(datagram(app, db, 40000, 5432, 100))
			w.socket.Send(datagram(v6[0], v6[1], 40000, 53, 1000))
			sent++
		}
	}
	check := func(when string) {
		t.Helper()
		counts, lost := w.read(t, c)
		for h, size := range map[Half]uint64{{app, db, 40000, 5432, 17}: 142, {v6[0], v6[1], 40000, 53, 17}: 1062} {
			if got := counts[Key{h, w.index(t, outer)}]; got.Packets != sent || got.Bytes != sent*size || lost != (Lost{}) || got.Last.Before(got.First) || got.Port != "gv0123456789ab" {
				t.Errorf("%s: %+v counted of %+v, %+v lost; want %d packets", when, got, h, lost, sent)
			}
		}
	}
	send()
	check("alone")
	take(link.First, "gv_endpoint")
	send()
	check("behind a program that comes after it")
	take(link.First, "gv_endpoint") // replaced
	send()
	check("behind a program that was replaced")
	_ = c.Close() // the agent ends
	send()
	c = w.start(t)
	check("while no agent runs")
	send()
	check("by another agent")
	w.host.Do(func() {
		if id, first, err := link.Front(outer, link.Ingress, link.First); err != nil || id == 0 || !first {
			t.Errorf("in front: %d, %v, %v", id, first, err)
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		if c.Runs() {
			t.Error("it runs though it was stopped")
		}
		if id, err := link.AttachedTC(outer, link.Ingress, "gv_endpoint"); err != nil || id == 0 {
			t.Errorf("the other program is gone: %v", err)
		}
	})
}

// TestFollow: an interface that comes later is counted, too; the switch's end of it is not.
func TestFollow(t *testing.T) {
	host := linktest.New(t)
	c := New("gv0")
	host.Do(func() {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _ = c.Close() })
	other := linktest.New(t)
	for _, name := range []string{outer, "gv0123456789ab", "gx0123456789ab", "gvaaaaaaaaaaaa", "eth7", "gv0"} {
		linktest.Wire(t, name, host, other, nil, nil)
	}
	host.Do(func() {
		if err := c.Follow(); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]bool{outer: true, "gv0123456789ab": false, "gx0123456789ab": false, "gvaaaaaaaaaaaa": true, "eth7": false} {
			if id, _, err := link.Front(name, link.Ingress, link.First); err != nil || (id != 0) != want {
				t.Errorf("%s: program %d, %v; want %v", name, id, err, want)
			}
		}
		if id, _, err := link.Front("gv0", link.Egress, link.Last); err != nil || id == 0 {
			t.Errorf("gv0: program %d, %v", id, err)
		}
	})
}

// TestScan: one that sends to more than there is room for has two thirds of it at most, and each packet is counted or said to be
// lost; so has another one that does, of what is left; what a third one sends is counted, and what it sends in their names is no
// part of what they do.
func TestScan(t *testing.T) {
	w := newTown(t)
	others := map[string]*linktest.Socket{}
	for _, name := range []string{"gh1123456789ab", "gh2123456789ab"} {
		linktest.Wire(t, name, w.host, w.container, nil, nil)
		w.container.Do(func() { others[name] = linktest.Open(t, name) })
		t.Cleanup(others[name].Close)
	}
	c := w.start(t)
	of := func(counts map[Key]Count, name string) (n int) {
		index := w.index(t, name)
		for k := range counts {
			if k.Index == index {
				n++
			}
		}
		return n
	}
	const all = 60000
	for port := range all {
		w.socket.Send(datagram(app, db, 40000, uint16(port+1), 1))
	}
	counts, lost := w.read(t, c)
	if len(counts) < Room/2 || len(counts) > Room*2/3+1 || uint64(len(counts))+lost.Packets != all || lost.Bytes != lost.Packets*43 {
		t.Errorf("%d connections counted, %+v lost, of %d", len(counts), lost, all)
	}
	for port := range all {
		others["gh1123456789ab"].Send(datagram(app, db, 40001, uint16(port+1), 1))
	}
	counts, lost = w.read(t, c)
	if n := of(counts, "gh1123456789ab"); n < Room/5 || n > Room/3 || uint64(len(counts))+lost.Packets != 2*all {
		t.Errorf("of a second one %d counted, of %d, %+v lost", n, len(counts), lost)
	}
	const few = 1000
	for port := range few {
		others["gh2123456789ab"].Send(datagram(app, db, 40000, uint16(port+1), 1))
	}
	counts, after := w.read(t, c)
	if n := of(counts, "gh2123456789ab"); n != few || after != lost {
		t.Errorf("of a third one %d of %d counted, %+v lost after %+v", n, few, after, lost)
	}
	for port := range few {
		if got := counts[Key{Half{app, db, 40000, uint16(port + 1), 17}, w.index(t, outer)}]; got.Packets != 1 {
			t.Fatalf("%+v counted at port %d of the first one", got, port+1)
		}
	}
	// What has ended makes room, from the next look on.
	for k := range counts {
		if k.Index != w.index(t, outer) || k.SrcPort != 40000 {
			continue
		}
		w.host.Do(func() {
			if got, err := c.Take(k); err != nil || got.Packets != 1 {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	w.read(t, c)
	w.socket.Send(datagram(app, db, 40001, 1, 1))
	counts, last := w.read(t, c)
	if last != after || counts[Key{Half{app, db, 40001, 1, 17}, w.index(t, outer)}].Packets != 1 {
		t.Errorf("there is no room: %+v", last)
	}
}

// TestForms: however its headers are read, a packet is one of its connection.
func TestForms(t *testing.T) {
	spec, err := loadBpf()
	if err != nil {
		t.Fatal(err)
	}
	var objs bpfObjects
	if err := spec.LoadAndAssign(&objs, nil); err != nil {
		t.Fatal(err)
	}
	defer objs.Close()
	const ihl, fragment, proto, transport = 14, 20, 23, 34
	udp := datagram(app, db, 40000, 5432, 100)
	with := func(frame []byte, change func(b []byte) []byte) []byte { return change(append([]byte(nil), frame...)) }
	tcp := with(udp, func(b []byte) []byte { b[proto], b[transport+12], b[transport+13] = 6, 0x50, 2; return b }) // SYN
	optional := func(b []byte) []byte {
		b[ihl] = 0x46
		return append(append(append([]byte(nil), b[:transport]...), 1, 1, 1, 0), b[transport:]...)
	}
	first, later := func(b []byte) []byte { b[fragment] = 0x20; return b }, func(b []byte) []byte { b[fragment+1] = 9; return b }
	ack := func(b []byte) []byte { b[transport+13] = 0x10; return b }
	want := map[Half]Count{}
	for _, c := range []struct {
		frame   []byte
		proto   uint8
		ports   bool
		flags   uint8
		ignored bool
	}{
		{udp, 17, true, 0, false},
		{with(udp, optional), 17, true, 0, false},
		{with(udp, first), 17, true, 0, false},
		{with(udp, later), 17, false, 0, false},
		{tcp, 6, true, 2, false},
		{with(tcp, optional), 6, true, 2, false},
		{with(with(tcp, ack), optional), 6, true, 0x10, false},
		{with(tcp, ack), 6, true, 0x10, false},
		{with(tcp, later), 6, false, 0, false},
		{tcp[:transport+10], 6, false, 0, false}, // cut before its flags
		{udp[:transport+4], 17, true, 0, false},  // cut behind its ports
		{with(udp, func(b []byte) []byte { b[ihl] = 0x65; return b }), 0, false, 0, true},
		{with(udp, func(b []byte) []byte { b[ihl] = 0x44; return b }), 0, false, 0, true},
	} {
		if _, _, err := objs.GvCount.Test(c.frame); err != nil {
			t.Fatal(err)
		}
		h := Half{app, db, 40000, 5432, c.proto}
		if !c.ports {
			h.SrcPort, h.DstPort = 0, 0
		}
		if n := want[h]; !c.ignored {
			want[h] = Count{Packets: n.Packets + 1, Bytes: n.Bytes + uint64(len(c.frame)), Flags: n.Flags | c.flags}
		}
	}
	var key wireHalf
	var value wireCount
	found := 0
	for all := objs.GvHalves.Iterate(); all.Next(&key, &value); found++ {
		w, is := want[key.key().Half]
		if got := (Count{Packets: value.Packets, Bytes: value.Bytes, Flags: value.Flags}); !is || got != w {
			t.Errorf("of %+v %+v are counted, want %+v", key.key(), got, w)
		}
	}
	if found != len(want) {
		t.Errorf("%d connections, want %d", found, len(want))
	}
}

// BenchmarkCount is what a packet of a known connection costs.
func BenchmarkCount(b *testing.B) {
	spec, err := loadBpf()
	if err != nil {
		b.Fatal(err)
	}
	var objs bpfObjects
	if err := spec.LoadAndAssign(&objs, nil); err != nil {
		b.Fatal(err)
	}
	defer objs.Close()
	_, each, err := objs.GvCount.Benchmark(datagram(app, db, 40000, 5432, 100), max(b.N, 1000000), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(each.Nanoseconds()), "ns/packet")
}
