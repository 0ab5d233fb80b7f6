package capture

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/bpf"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/host/packets"
	"github.com/grapevine-net/grapevine/observe/pcapng"
)

// wire is a Tap of packets that a test sends.
type wire struct {
	from chan packets.Packet
	gone chan struct{}
	once sync.Once
}

func newWire() *wire { return &wire{from: make(chan packets.Packet), gone: make(chan struct{})} }

func (w *wire) Read() (packets.Packet, error) {
	select {
	case p, ok := <-w.from:
		if !ok {
			return p, packets.ErrGone
		}
		return p, nil
	case <-w.gone:
		return packets.Packet{}, os.ErrClosed
	}
}
func (w *wire) Counts() (seen, lost uint64) { return 0, 0 }
func (w *wire) Close() error                { w.once.Do(func() { close(w.gone) }); return nil }

// send sends packets until the tap is closed.
func (w *wire) send(n int, data []byte) (sent int) {
	for range n {
		select {
		case w.from <- packets.Packet{At: time.Unix(1, 2), Data: data, Length: len(data)}:
			sent++
		case <-w.gone:
			return sent
		}
	}
	return sent
}

// udp is a frame with a payload.
func udp(payload string) []byte {
	b := append(make([]byte, 12), 8, 0, 0x45, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(28+len(payload)))
	b = append(b, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 1, 0, 2)
	b = binary.BigEndian.AppendUint16(b, uint16(8+len(payload)))
	return append(append(b, 0, 0), payload...)
}

// world has app on host a and db on host b, and a desk on each, which call each other.
type world struct {
	snap  *cluster.Snapshot
	a, b  *Desk
	tap   *wire // of whichever container is captured
	calls func(method string) error
}

const (
	hostA cluster.NodeID = "000000000000000a"
	hostB cluster.NodeID = "000000000000000b"
)

func snapshotOf(t *testing.T) *cluster.Snapshot {
	t.Helper()
	a, b := cluster.New(hostA), cluster.New(hostB)
	addr := netip.MustParseAddr
	put := func(s *cluster.State, bodies ...cluster.Body) {
		for _, body := range bodies {
			if _, _, err := s.Put(body); err != nil {
				t.Fatal(err)
			}
		}
	}
	endpoint := func(digit string, host cluster.NodeID, name, at string) cluster.Endpoint {
		return cluster.Endpoint{ID: strings.Repeat(digit, 64), Container: strings.Repeat(digit, 64), Network: "blue", Name: name, Host: host, Addrs: []netip.Addr{addr(at)}, MAC: "0a:00:00:00:00:01"}
	}
	put(a, cluster.Node{ID: hostA, Name: "host1", VTEP: addr("192.0.2.1")}, cluster.Network{Name: "blue", VNID: 7}, endpoint("a", hostA, "app", "10.0.0.1"), endpoint("1", hostA, "twin", "10.0.0.3"))
	put(b, cluster.Node{ID: hostB, Name: "host2", VTEP: addr("192.0.2.2")}, endpoint("b", hostB, "db", "10.0.0.2"), endpoint("2", hostB, "twin", "10.0.0.4"))
	var recs []cluster.Record
	for r := range b.Snapshot().Records() {
		recs = append(recs, r)
	}
	if _, err := a.Merge(recs); err != nil {
		t.Fatal(err)
	}
	return a.Snapshot()
}

func newWorld(t *testing.T, consent string) *world {
	t.Helper()
	w := &world{tap: newWire(), snap: snapshotOf(t)}
	desk := func(self cluster.NodeID) *Desk {
		d := New(Config{
			Self: self, Version: "1", Snapshot: func() *cluster.Snapshot { return w.snap }, Consent: consent, Log: slog.New(slog.DiscardHandler),
			Open: func(string, []bpf.RawInstruction) (Tap, Place, error) { return w.tap, Place{Name: "eth0"}, nil },
		})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); _ = d.Run(ctx) }()
		for { // until it has begun
			d.mu.Lock()
			begun := d.life != nil
			d.mu.Unlock()
			if begun {
				break
			}
			time.Sleep(time.Millisecond)
		}
		t.Cleanup(func() { cancel(); <-done })
		return d
	}
	w.a, w.b = desk(hostA), desk(hostB)
	w.a.cfg.Call = func(ctx context.Context, node, method string, body []byte) ([]byte, error) {
		h := w.b.Methods()[method]
		reply, err := h(ctx, string(hostA), body)
		if err != nil {
			return nil, &gossip.RemoteError{Node: node, Method: method, Text: err.Error()}
		}
		if w.calls != nil {
			if err := w.calls(method); err != nil {
				return nil, err // the answer is lost
			}
		}
		return reply, nil
	}
	return w
}

// whole reads a capture to its end.
func whole(t *testing.T, b []byte) (list []pcapng.Packet, r *pcapng.Reader) {
	t.Helper()
	r = pcapng.NewReader(bytes.NewReader(b))
	for {
		p, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list, r
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

// TestBounds: a capture ends by each of its bounds, exactly there, and says why.
func TestBounds(t *testing.T) {
	frame := udp("12345678")
	for _, host := range []string{"app", "db"} { // here and on another host
		for _, tt := range []struct {
			r       api.CaptureRequest
			packets uint64
			why     string
		}{
			{api.CaptureRequest{Packets: 7}, 7, "so many packets were captured"},
			{api.CaptureRequest{Bytes: uint64(5*len(frame) + 1)}, 5, "so many bytes were captured"},
			{api.CaptureRequest{Seconds: 0.05}, 0, "the time is over"},
			{api.CaptureRequest{}, 20, "the container has ended, or left the network"},
		} {
			w := newWorld(t, "full")
			go func() {
				if tt.packets > 0 {
					w.tap.send(20, frame)
					close(w.tap.from)
				}
			}()
			tt.r.Container = host
			var out bytes.Buffer
			end, err := w.a.Capture(t.Context(), tt.r, &out)
			list, r := whole(t, out.Bytes())
			if err != nil || end.Why != tt.why || end.Packets != tt.packets || uint64(len(list)) != tt.packets || end.Lost != 0 || len(r.Statistics) != 1 {
				t.Errorf("%s, %+v: %v, %+v, %d packets", host, tt.r, err, end, len(list))
			}
			for _, p := range list {
				if !bytes.Equal(p.Data, frame) || !p.At.Equal(time.Unix(1, 2)) {
					t.Fatalf("%+v", p)
				}
			}
			if got := r.Names[netip.MustParseAddr("10.0.0.2")]; got != "db" {
				t.Errorf("10.0.0.2 is called %q", got)
			}
		}
	}
}

// TestNothingIsLostOnTheWay: answers between hosts that are lost are asked for again, and lose no byte.
func TestNothingIsLostOnTheWay(t *testing.T) {
	w := newWorld(t, "full")
	random := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	lost := 0
	w.calls = func(method string) error {
		mu.Lock()
		defer mu.Unlock()
		if method == methodRead && random.IntN(8) == 0 {
			lost++
			return errors.New("the answer was lost")
		}
		return nil
	}
	frame := udp(strings.Repeat("x", 1000))
	go w.tap.send(3000, frame)
	var out bytes.Buffer
	end, err := w.a.Capture(t.Context(), api.CaptureRequest{Container: "db", Packets: 3000}, &out)
	if list, _ := whole(t, out.Bytes()); err != nil || end.Packets != 3000 || len(list) != 3000 || lost == 0 {
		t.Errorf("%v, %+v, %d packets, %d answers lost", err, end, len(list), lost)
	}
}

// stuck is a reader that takes nothing until it is told to.
type stuck struct {
	bytes.Buffer
	open chan struct{}
}

func (s *stuck) Write(b []byte) (int, error) {
	<-s.open
	return s.Buffer.Write(b)
}

// TestWhatDoesNotFitIsCounted: a reader that is slow costs so much memory and no more, and what is lost is told.
func TestWhatDoesNotFitIsCounted(t *testing.T) {
	w := newWorld(t, "full")
	out := &stuck{open: make(chan struct{})}
	frame := udp(strings.Repeat("x", 60000))
	sent := make(chan int)
	go func() {
		n := w.tap.send(400, frame) // 24 MB
		close(out.open)
		close(w.tap.from)
		sent <- n
	}()
	end, err := w.a.Capture(t.Context(), api.CaptureRequest{Container: "app"}, out)
	list, r := whole(t, out.Bytes())
	if n := <-sent; err != nil || n != 400 || end.Lost == 0 || end.Packets+end.Lost != 400 || uint64(len(list)) != end.Packets || r.Statistics[0].DroppedByUs != end.Lost {
		t.Errorf("%v, %d sent, %+v, %d packets, %+v", err, n, end, len(list), r.Statistics)
	}
	if out.Len() > 2*room {
		t.Errorf("%d bytes were kept", out.Len())
	}
}

// TestConsent: other hosts get what this one's settings say, and root here all.
func TestConsent(t *testing.T) {
	const secret = "the password is vine"
	capture := func(consent, container string) (api.CaptureEnd, string, error) {
		w := newWorld(t, consent)
		go w.tap.send(1, udp(secret))
		var out bytes.Buffer
		end, err := w.a.Capture(t.Context(), api.CaptureRequest{Container: container, Packets: 1}, &out)
		return end, out.String(), err
	}
	for _, tt := range []struct {
		consent, container string
		secret, refused    bool
	}{
		{"headers", "app", true, false}, {"off", "app", true, false}, {"full", "app", true, false},
		{"headers", "db", false, false}, {"off", "db", false, true}, {"full", "db", true, false}, {"", "db", false, false},
	} {
		end, text, err := capture(tt.consent, tt.container)
		if strings.Contains(text, secret) != tt.secret || (err != nil) != tt.refused || (end.Cut != "") != (!tt.secret && !tt.refused) {
			t.Errorf("%+v: %v, %+v", tt, err, end)
		}
	}
}

// TestNobodyReads: what another host has asked for and forgotten ends by itself.
func TestNobodyReads(t *testing.T) {
	w := newWorld(t, "full")
	s, err := w.b.begin(order{Endpoints: []string{strings.Repeat("b", 64)}}, string(hostA), false)
	if err != nil {
		t.Fatal(err)
	}
	s.watch(50*time.Millisecond, nil)
	<-s.stop
	<-w.tap.gone // the socket is closed: nothing is left behind
	if !strings.HasPrefix(s.Why, "nobody has read") {
		t.Errorf("why: %s", s.Why)
	}
	s.release()
	if n := w.b.held(); n != 0 {
		t.Errorf("%d still run", n)
	}
}

// TestClientGoes: with the asker goes the capture, on both hosts.
func TestClientGoes(t *testing.T) {
	for _, container := range []string{"app", "db"} {
		w := newWorld(t, "full")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		if _, err := w.a.Capture(ctx, api.CaptureRequest{Container: container}, io.Discard); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		<-w.tap.gone
		if a, b := w.a.held(), w.b.held(); a+b != 0 {
			t.Errorf("%s: %d and %d are held", container, a, b)
		}
	}
}

// held are the places for captures that are taken, and the sessions that are kept.
func (d *Desk) held() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.running) + len(d.others)
}

func TestRefused(t *testing.T) {
	w := newWorld(t, "full")
	for want, r := range map[string]api.CaptureRequest{
		"there is no container ghost":                          {Container: "ghost"},
		"several containers are called so, 111111111111 on":    {Container: "twin"},
		"no container has the address 10.0.0.9":                {Container: "10.0.0.9"},
		"icmp has no ports":                                    {Container: "app", Proto: "icmp", Port: 80},
		"its peer: there is no container ghost":                {Container: "app", Peer: "ghost"},
		"capture the packets of db on host host2: no sandbox":  {Container: "db"},
		"capture the packets of app: no sandbox":               {Container: "app"},
		"for -1 seconds is no time":                            {Container: "app", Seconds: -1},
		"there is no protocol tpc: say tcp, udp, sctp, icmp, ": {Container: "app", Proto: "tpc"},
	} {
		w.a.cfg.Open = func(string, []bpf.RawInstruction) (Tap, Place, error) { return nil, Place{}, errors.New("no sandbox") }
		w.b.cfg.Open = w.a.cfg.Open
		if _, err := w.a.Capture(t.Context(), r, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", r, err, want)
		}
	}
	if a, b := w.a.held(), w.b.held(); a+b != 0 {
		t.Errorf("%d and %d still run", a, b)
	}
	for range maxSessions {
		if _, err := w.a.enter(""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.a.Capture(t.Context(), api.CaptureRequest{Container: "app"}, io.Discard); err == nil || !strings.Contains(err.Error(), "end one of them first") {
		t.Errorf("one too many: %v", err)
	}
}

// TestOneHostIsNotAll: a host that asks for all captures that there can be has three, and those that ask have six: others,
// and people here, capture beside them. What has ended counts no longer.
func TestOneHostIsNotAll(t *testing.T) {
	w := newWorld(t, "full")
	d := w.b
	takes := func(host string, want int) {
		t.Helper()
		for n := 0; ; n++ {
			if _, err := d.enter(host); err != nil {
				if n != want {
					t.Errorf("host %q has %d captures, want %d: %v", host, n, want, err)
				}
				return
			}
		}
	}
	takes("thief", maxOfHost)
	takes("another", maxOthers-maxOfHost)
	takes("third", 0)
	d.leave("another")
	takes("third", 1)
	takes("", maxSessions-maxOthers)
	_, err := w.a.Capture(t.Context(), api.CaptureRequest{Container: "db"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "end one of them first") {
		t.Errorf("one too many: %v", err)
	}
}

// TestReadByOthers: Debian's tcpdump and tshark read what is written, names and all.
func TestReadByOthers(t *testing.T) {
	w := newWorld(t, "full")
	go w.tap.send(3, udp("x"))
	file := filepath.Join(t.TempDir(), "a.pcapng")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.a.Capture(t.Context(), api.CaptureRequest{Container: "app", Packets: 3}, f); err != nil {
		t.Fatal(err)
	}
	f.Close()
	for _, tt := range []struct {
		command []string
		want    string
	}{
		{[]string{"tcpdump", "-nr", file}, "10.0.0.1.1 > 10.0.0.2.2: UDP"},
		{[]string{"tshark", "-N", "n", "-r", file, "-T", "fields", "-e", "frame.interface_name", "-e", "_ws.col.Source", "-e", "_ws.col.Destination"}, "app@host1\tapp\tdb"},
	} {
		if _, err := exec.LookPath(tt.command[0]); err != nil && os.Getenv("CI") == "" {
			t.Skipf("%s is not installed: scripts/setup test, scripts/setup page", tt.command[0])
		}
		out, err := exec.Command(tt.command[0], tt.command[1:]...).Output()
		if err != nil || strings.Count(string(out), tt.want) != 3 {
			t.Errorf("%q: %v\n%s\nwant %s, three times", tt.command, err, out, tt.want)
		}
	}
}

// FuzzCalls: what other hosts ask never harms this one.
func FuzzCalls(f *testing.F) {
	f.Add(uint8(0), []byte{0xa2, 1, 5, 2, 0xa1, 1, 0x81, 0x61, 'x'})
	f.Add(uint8(1), []byte{0xa1, 1, 5})
	f.Add(uint8(2), []byte{})
	f.Fuzz(func(t *testing.T, method uint8, body []byte) {
		d := New(Config{Self: hostA, Consent: "headers", Snapshot: cluster.New(hostA).Snapshot, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = d.Run(ctx)
		_, _ = d.Methods()[[]string{methodStart, methodRead, methodStop}[method%3]](ctx, string(hostB), body)
	})
}
