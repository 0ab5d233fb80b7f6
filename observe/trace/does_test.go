package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/encap"
	"github.com/grapevine-net/grapevine/host/packets"
	"github.com/grapevine-net/grapevine/observe/frames"
)

// line is a tap that a test puts frames into.
type line struct {
	from chan []byte
	gone chan struct{}
	once sync.Once
}

func (l *line) Read() (packets.Packet, error) {
	select {
	case b := <-l.from:
		return packets.Packet{Data: b}, nil
	case <-l.gone:
		return packets.Packet{}, os.ErrClosed
	}
}
func (l *line) Close() error { l.once.Do(func() { close(l.gone) }); return nil }

// put returns when the frame was looked at: the next one is taken then.
func (l *line) put(b []byte) { l.from <- b; l.from <- []byte{0} }

func frame(src, dst netip.Addr, proto byte, body []byte) []byte {
	b := append(make([]byte, 12), 8, 0, 0x45, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(20+len(body)))
	b = append(append(b, 0, 0, 0, 0, 64, proto, 0, 0), src.AsSlice()...)
	return append(append(b, dst.AsSlice()...), body...)
}

func inVXLAN(b []byte) []byte {
	return frame(vtepA, vtepB, 17, append([]byte{1, 0, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0}, b...))
}

// TestDoes: a packet is sent once both hosts look for it, and where it was seen comes back, in order.
func TestDoes(t *testing.T) {
	w := newWorld(t)
	w.answer = whole
	taps := map[string]*line{}
	wires := func(self cluster.NodeID) Wires {
		open := func(name string) (Tap, string, error) {
			l := &line{from: make(chan []byte), gone: make(chan struct{})}
			taps[name] = l
			return l, "eth0", nil
		}
		return Wires{
			Container: func(id string, _ []bpf.RawInstruction) (Tap, string, error) { return open(id[:1]) },
			Underlay:  func([]bpf.RawInstruction) (Tap, string, error) { return open("wire" + string(self[15:])) },
			Log:       slog.New(slog.DiscardHandler), Encap: encap.VXLAN, VXLANPort: 4789,
		}
	}
	answers := true
	sent := 0
	a := wires(hostA)
	a.Send = func(id string, p frames.Probe) error {
		if sent++; id != appID || len(taps) != 4 {
			return fmt.Errorf("%s, while %d places are watched", id, len(taps))
		}
		out := frame(p.Src, p.Dst, p.Proto, p.Body())
		taps["a"].put(out)
		taps["wirea"].put(inVXLAN(out))
		taps["wireb"].put(inVXLAN(out))
		if !answers {
			return nil
		}
		taps["b"].put(out)
		back := p.Body()
		binary.BigEndian.PutUint16(back, p.To)
		binary.BigEndian.PutUint16(back[2:], p.From)
		back[13] = 0x12
		taps["b"].put(frame(p.Dst, p.Src, p.Proto, back))
		taps["a"].put(frame(p.Dst, p.Src, p.Proto, back)) // on the wire it was overlooked
		return nil
	}
	w.a.runs.wires, w.b.runs.wires = a, wires(hostB)
	ask := func() *api.TracePacket {
		t.Helper()
		sent, taps = 0, map[string]*line{}
		got, err := w.a.Trace(t.Context(), api.TraceRequest{From: "app", To: "db", Port: 80})
		if err != nil || got.Packet == nil {
			t.Fatal(got, err)
		}
		for _, d := range []*Desk{w.a, w.b} {
			if len(d.runs.all) != 0 {
				t.Errorf("%d packets are looked for still", len(d.runs.all))
			}
		}
		return got.Packet
	}
	show := func(p *api.TracePacket) string {
		var list []string
		for _, at := range p.Points {
			list = append(list, fmt.Sprintf("%s%s:%v", at.Host[4:], at.Container, at.Seen))
		}
		return strings.Join(list, " ") + " " + p.Answer + p.Error
	}
	if got, want := show(ask()), "1app:true 1:true 2:true 2db:true 2db:true 2:true 1:true 1app:true open"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	answers = false
	if got, want := show(ask()), "1app:true 1:true 2:true 2db:false 2db:false 2:false 1:false 1app:false "; got != want || sent != tries {
		t.Errorf("%s, want %s; %d were sent", got, want, sent)
	}
	w.b.runs.wires.Routed = func(id string, from, to netip.Addr) error {
		if id != dbID || from != dbAt || to != appAt {
			t.Errorf("%s is asked for a route from %s to %s", id, from, to)
		}
		return fmt.Errorf("look for a route: %w", unix.ENETUNREACH)
	}
	if got := ask(); got.NoWay != "look for a route: network is unreachable" {
		t.Errorf("%+v", got)
	}
	w.b.runs.wires.Closed, answers = true, true
	a.Send = func(string, frames.Probe) error { return errors.New("network is unreachable") }
	w.a.runs.wires = a
	if got := ask(); got.Error != "network is unreachable" || !got.Stuck || !got.Failed || got.Held || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "GRAPEVINE_CAPTURE=off") {
		t.Errorf("%+v", got)
	}
	a.Send = func(string, frames.Probe) error { return fmt.Errorf("send a packet: %w", unix.EPERM) }
	w.a.runs.wires = a
	if got := ask(); !got.Failed || !got.Held || got.Stuck {
		t.Errorf("%+v", got)
	}
	for want, o := range map[string]order{
		"is no address of endpoint": {Points: []string{appID}, From: appID, Probe: frames.Probe{Src: dbAt, Dst: dbAt, Proto: 6}},
		"protocol 255":              {Points: []string{appID}, From: appID, Probe: frames.Probe{Src: appAt, Dst: dbAt, Proto: 255}},
		"is not on this host":       {Points: []string{dbID}, Probe: frames.Probe{Src: appAt, Dst: dbAt, Proto: 6}},
	} {
		if _, err := w.a.runs.watch(seat{"x", 1}, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	w.a.runs.all = map[seat]*run{{"x", 1}: {}, {"x", 2}: {}, {"x", 3}: {}, {"x", 4}: {}}
	got, err := w.a.Trace(t.Context(), api.TraceRequest{From: "app", To: "db", Port: 80})
	if err != nil || !strings.Contains(got.Packet.Error, "4 packets are traced") {
		t.Errorf("%+v, %v", got.Packet, err)
	}
	if got, err := w.a.Trace(t.Context(), api.TraceRequest{From: "app", To: "db", Port: 80, Proto: "sctp"}); err != nil || got.Packet.Error == "" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestEndedWhileItBegins: a host that ends a trace before this one has begun to look leaves no tap here; nor does it have more
// than one packet sent.
func TestEndedWhileItBegins(t *testing.T) {
	w := newWorld(t)
	at, o := seat{string(hostB), 1}, order{Points: []string{appID}, From: appID, Probe: frames.Probe{Src: appAt, Dst: dbAt, Proto: 6}}
	tap := &line{from: make(chan []byte), gone: make(chan struct{})}
	sent := 0
	wires := Wires{Log: slog.New(slog.DiscardHandler), Send: func(string, frames.Probe) error { sent++; return errors.New("no") }}
	wires.Container = func(string, []bpf.RawInstruction) (Tap, string, error) { w.a.runs.end(at); return tap, "eth0", nil }
	w.a.runs.wires = wires
	if _, err := w.a.runs.watch(at, o); err == nil {
		t.Error("it is watched though it is over")
	}
	select {
	case <-tap.gone:
	default:
		t.Error("a tap is left")
	}
	wires.Container = func(string, []bpf.RawInstruction) (Tap, string, error) { return tap, "eth0", nil }
	w.a.runs.wires = wires
	if _, err := w.a.runs.watch(at, o); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, _ = w.a.runs.send(t.Context(), at)
	}
	if w.a.runs.end(at); sent != 1 {
		t.Errorf("%d packets were sent", sent)
	}
}
