package ipfix

import (
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/observe/traffic"
	"github.com/grapevine-net/grapevine/overlay/counter"
)

var began = time.Unix(1800000000, 123e6)

func flow(src, dst string) Flow {
	return Flow{
		Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), SrcPort: 40000, DstPort: 80, Proto: 6, Flags: 0x13, Packets: 3, Bytes: 300,
		Start: began, End: began.Add(1500 * time.Millisecond), Reason: Ended, VNID: 7, From: Place{"blue", "app", "host1"}, To: Place{"blue", "db", "host2"},
	}
}

// collector reads messages as RFC 7011 says, by the templates that it has got.
type collector struct {
	t         *testing.T
	templates map[uint16][][3]uint32 // element, length, enterprise
	sequence  uint32
	records   []map[uint32][]byte // by enterprise<<16 | element
}

func (c *collector) read(b []byte) {
	c.t.Helper()
	be := binary.BigEndian
	if be.Uint16(b) != 10 || int(be.Uint16(b[2:])) != len(b) || len(b) > largest {
		c.t.Fatalf("version %d, length %d of %d", be.Uint16(b), be.Uint16(b[2:]), len(b))
	}
	if got := be.Uint32(b[8:]); got != c.sequence {
		c.t.Errorf("sequence number %d after %d records", got, c.sequence)
	}
	if be.Uint32(b[12:]) != 9 {
		c.t.Errorf("domain %d", be.Uint32(b[12:]))
	}
	id, set := be.Uint16(b[16:]), b[20:]
	if int(be.Uint16(b[18:])) != len(b)-16 {
		c.t.Errorf("a set of %d bytes in a message of %d", be.Uint16(b[18:]), len(b))
	}
	if id == 2 {
		for len(set) > 0 {
			id, n := be.Uint16(set), int(be.Uint16(set[2:]))
			set = set[4:]
			c.templates[id] = nil
			for range n {
				f := [3]uint32{uint32(be.Uint16(set)), uint32(be.Uint16(set[2:]))}
				if set = set[4:]; f[0]&0x8000 != 0 {
					f[0], f[2], set = f[0]&0x7fff, be.Uint32(set), set[4:]
				}
				c.templates[id] = append(c.templates[id], f)
			}
		}
		return
	}
	for len(set) > 0 {
		record := map[uint32][]byte{}
		for _, f := range c.templates[id] {
			n := int(f[1])
			if n == varies {
				n, set = int(set[0]), set[1:]
			}
			record[f[2]<<16|f[0]], set = set[:n], set[n:]
		}
		c.records = append(c.records, record)
		c.sequence++
	}
}

// TestMessages: what a collector makes of messages, by the RFC, is the flows; sequence numbers count the data records
// that came before, templates none.
func TestMessages(t *testing.T) {
	c := &collector{t: t, templates: map[uint16][][3]uint32{}}
	e := Encoder{Domain: 9}
	var flows []Flow
	for range 20 {
		flows = append(flows, flow("10.0.0.1", "10.0.0.2"), flow("fd00::1", "fd00::2"))
	}
	sizes := []int{}
	for i := range 3 {
		messages := e.Messages(flows, began.Add(time.Duration(i)*40*time.Second))
		sizes = append(sizes, len(messages))
		for _, m := range messages {
			c.read(m)
		}
	}
	if len(c.records) != 3*len(flows) || sizes[0] != sizes[1]+1 || sizes[2] != sizes[0] {
		t.Fatalf("%d records of %d flows in %v messages", len(c.records), len(flows), sizes)
	}
	r := c.records[0]
	const enterprise = uint32(antrea%(1<<16)) << 16
	number := func(element uint32) (n uint64) {
		for _, b := range r[element] {
			n = n<<8 | uint64(b)
		}
		return n
	}
	for element, want := range map[uint32]uint64{
		150: 1800000000, 151: 1800000001, 152: 1800000000123, 153: 1800000001623, 8: 0x0a000001, 12: 0x0a000002, 7: 40000, 11: 80, 4: 6, 6: 0x13,
		2: 3, 1: 300, 136: Ended, 351: 1<<56 | 7, enterprise | 137: 2,
	} {
		if got := number(element); got != want {
			t.Errorf("element %d is %d, want %d", element&0xffff, got, want)
		}
	}
	for element, want := range map[uint32]string{100: "blue", 101: "app", 102: "blue", 103: "db", 104: "host1", 105: "host2"} {
		if got := string(r[enterprise|element]); got != want {
			t.Errorf("element %d is %q, want %q", element, got, want)
		}
	}
	if got := c.records[20][27]; netip.AddrFrom16([16]byte(got)) != netip.MustParseAddr("fd00::1") {
		t.Errorf("%x", got)
	}
}

func TestKind(t *testing.T) {
	in, out, other := Place{Host: "a"}, Place{}, Place{Host: "b"}
	for want, f := range map[uint8]Flow{1: {From: in, To: in}, 2: {From: in, To: other}, 3: {From: in, To: out}, 4: {From: out, To: in}} {
		if got := kind(f); got != want {
			t.Errorf("%+v: %d, want %d", f, got, want)
		}
	}
}

// TestExporter: what is new is told once: when it has ended, when it has gone on for long, when it is silent.
func TestExporter(t *testing.T) {
	listener, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	e := New(Config{Collector: listener.LocalAddr().String(), Domain: 9, VNID: func(string) uint32 { return 7 }, Log: slog.New(slog.DiscardHandler)})
	half := func(port uint16) counter.Half {
		return counter.Half{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), SrcPort: port, DstPort: 80, Proto: 6}
	}
	record := func(port uint16, packets uint64, last time.Duration) *traffic.Record {
		return &traffic.Record{Half: half(port), Count: counter.Count{Packets: packets, Bytes: 100 * packets, First: began, Last: began.Add(last), Flags: 2}, Src: traffic.Who{Name: "app", Network: "blue", Host: "host1"}}
	}
	look := func(at time.Duration, ended []*traffic.Record, live ...*traffic.Record) (told []Flow) {
		all := map[counter.Half]*traffic.Record{}
		for _, r := range live {
			all[r.Half] = r
		}
		e.Look(all, ended, began.Add(at))
		told, lost := e.take()
		if lost != 0 {
			t.Errorf("%d lost", lost)
		}
		return told
	}
	want := func(what string, told []Flow, want ...Flow) {
		t.Helper()
		if len(told) != len(want) {
			t.Fatalf("%s: %+v", what, told)
		}
		for i, w := range want {
			if g := told[i]; g.SrcPort != w.SrcPort || g.Packets != w.Packets || g.Bytes != 100*w.Packets || g.Reason != w.Reason || !g.Start.Equal(w.Start) || g.VNID != 7 || g.From.Container != "app" || g.To != (Place{}) {
				t.Errorf("%s: %+v, want %+v", what, g, w)
			}
		}
	}
	want("of a former agent", look(0, nil, record(9, 50, 0)))
	want("it is new", look(time.Second, nil, record(9, 50, 0), record(1, 5, 0)))
	want("silent", look(16*time.Second, nil, record(9, 50, 0), record(1, 5, time.Second)), Flow{SrcPort: 1, Packets: 5, Reason: Idle, Start: began})
	want("nothing new", look(40*time.Second, nil, record(9, 50, 0), record(1, 5, time.Second)))
	want("busy", look(50*time.Second, nil, record(1, 9, 49*time.Second)))
	want("for long", look(80*time.Second, nil, record(1, 12, 79*time.Second)), Flow{SrcPort: 1, Packets: 7, Reason: Active, Start: began.Add(time.Second)})
	want("ended", look(85*time.Second, []*traffic.Record{record(1, 13, 84*time.Second), record(2, 4, 84*time.Second)}),
		Flow{SrcPort: 1, Packets: 1, Reason: Ended, Start: began.Add(79 * time.Second)}, Flow{SrcPort: 2, Packets: 4, Reason: Ended, Start: began})
	if len(e.told) != 0 {
		t.Errorf("%d flows are remembered", len(e.told))
	}

	// It arrives; and that nobody listens stops nothing.
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	c := &collector{t: t, templates: map[uint16][][3]uint32{}}
	e.Look(nil, []*traffic.Record{record(3, 4, 0)}, began)
	buf := make([]byte, 2000)
	for len(c.records) == 0 {
		n, _, err := listener.ReadFrom(buf)
		if err != nil {
			t.Fatal(err)
		}
		c.read(buf[:n])
	}
	_ = listener.Close()
	for range 3 {
		e.Look(nil, []*traffic.Record{record(3, 4, 0)}, began)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for range most + 10 { // nobody takes them: it is bounded
		e.Look(nil, []*traffic.Record{record(3, 4, 0)}, began)
	}
	if flows, lost := e.take(); len(flows) != most || lost < 10 {
		t.Errorf("%d wait, %d are lost", len(flows), lost)
	}
}
