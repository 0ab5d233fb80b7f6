package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Sighting is what a witness saw. Of Kind
//
//	lost     datagrams to the witness To, or their answers, were lost: N of them, the first
//	         sent at From; the first that was answered again at Until, or when To
//	         was said to be no more, or started again
//	reset    a TCP connection to To ended at Until; Why. The last byte came back at From
//	crossed  a datagram of To came, which is on another network
//	met      To answered for the first time (since the later of the two was started)
//	joined   a TCP connection to To was made
//	framed   a frame came that To made itself
type Sighting struct {
	Kind  string    `json:"kind"`
	By    string    `json:"by"` // NETWORK/NAME, as To
	To    string    `json:"to"`
	From  time.Time `json:"from"`
	Until time.Time `json:"until"`
	N     int       `json:"n,omitempty"`
	Why   string    `json:"why,omitempty"`
}

// WitnessLate is how long an answer may take: then it is lost.
const WitnessLate = 3 * time.Second

const (
	witnessPort    = 7777
	witnessTick    = 100 * time.Millisecond
	witnessSilence = 40 * time.Second // a connection without an echo for so long has ended
)

// Witness starts a witness in the container's network namespace, which needs neither
// dockerd nor the agent: ten times a second it sends a datagram to every other one of
// the Witnesses, of its own network, and has a TCP connection to it. To those of other
// networks it sends twice a second whatever might get there: datagrams, and frames to their
// MAC address and to all, in its own name and in that of a witness of theirs. It goes on until the container's host ends.
func (c Container) Witness(ctx context.Context, network, name string) error {
	argv := c.enter([]string{labhost, network + "/" + name})
	return c.Host.Start(ctx, "witness-"+network, []string{roleVar + "=" + roleWitness}, argv...)
}

// WitnessAt is where a witness is, and since when: one that was started again has to be
// met anew, even if its address is what it was.
type WitnessAt struct {
	Addr  string    `json:"addr"`
	MAC   string    `json:"mac"`
	Since time.Time `json:"since"`
}

// SetWitnesses says to all witnesses which there are, by NETWORK/NAME. They look once a
// second, and then tell of what they lost to those that are not there any more.
func (l *Lab) SetWitnesses(all map[string]WitnessAt) error {
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	file := filepath.Join(l.share(), "witnesses")
	if err := os.WriteFile(file+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// Sightings returns all that the witnesses of a network on the host have seen so far:
// losses when they have ended.
func (l *Lab) Sightings(h *Host, network string) (list []Sighting, err error) {
	text, err := os.ReadFile(filepath.Join(h.logDir(), "witness-"+network+".log"))
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		var s Sighting
		if err := json.Unmarshal(line, &s); err != nil {
			// Half a line is that of a witness whose host lost its power.
			if line[0] == '{' {
				continue
			}
			return nil, fmt.Errorf("the witness of %s on %s says: %s", network, h.Name, line)
		}
		list = append(list, s)
	}
	return list, nil
}

// StopWitness ends the witness of a network on the host.
func StopWitness(ctx context.Context, h *Host, network string) error {
	return h.Stop(ctx, "witness-"+network, syscall.SIGTERM, 10*time.Second)
}

// witness is the process of a Witness.
type witness struct {
	self string // NETWORK/NAME
	raw  *framer
	mu   sync.Mutex
	out  *json.Encoder
	to   map[string]*witnessed
}

// witnessed is what a witness knows of another one; the witness' mu guards it.
type witnessed struct {
	WitnessAt
	forget    context.CancelFunc // of its connection
	sent      []sent             // in the last WitnessLate, the oldest first
	met, down bool
	framed    bool     // a frame of it came
	lost      Sighting // while down
}

// sent is a datagram of ours.
type sent struct {
	seq      int
	at       time.Time
	answered bool
}

func witnessMain(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	raw, err := newFramer()
	if err != nil {
		return err
	}
	w := &witness{self: args[0], raw: raw, out: json.NewEncoder(os.Stdout), to: map[string]*witnessed{}}
	conn, err := net.ListenPacket("udp", fmt.Sprint(":", witnessPort))
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", fmt.Sprint(":", witnessPort))
	if err != nil {
		return err
	}
	go w.receive(conn)
	go w.serve(l)
	tick := time.NewTicker(witnessTick)
	for seq := 0; ; seq++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if seq%10 == 0 {
			w.learn(ctx)
		}
		w.ask(conn, seq)
	}
}

// learn reads who is there.
func (w *witness) learn(ctx context.Context) {
	all := map[string]WitnessAt{}
	text, err := os.ReadFile(shareMount + "/witnesses")
	if err != nil || json.Unmarshal(text, &all) != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, t := range w.to {
		if t.WitnessAt != all[name] {
			w.end(t)
			delete(w.to, name)
		}
	}
	for name, at := range all {
		if name == w.self || w.to[name] != nil {
			continue
		}
		ctx, forget := context.WithCancel(ctx)
		w.to[name] = &witnessed{WitnessAt: at, forget: forget}
		if network(name) == network(w.self) {
			go w.connect(ctx, name, at.Addr)
		}
	}
}

// end is about one that is no more, or has been started again: a loss that it ended is
// told of. It is called with mu held.
func (w *witness) end(t *witnessed) {
	t.forget()
	if t.down {
		t.lost.Until = now()
		w.say(t.lost)
	}
}

// now is the time of day as it was when the process began, and as much later as has passed:
// a host's clock may be set.
func now() time.Time { return begun.Add(time.Since(begun)) }

var begun = time.Now()

func network(name string) string {
	network, _, _ := strings.Cut(name, "/")
	return network
}

// say is called with mu held.
func (w *witness) say(s Sighting) {
	s.By = w.self
	_ = w.out.Encode(s)
}

func (w *witness) ask(conn net.PacketConn, seq int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := now()
	for name, t := range w.to {
		own := network(name) == network(w.self)
		if own {
			t.sent = append(t.sent, sent{seq: seq, at: now})
			w.overdue(name, t, now.Add(-WitnessLate))
		}
		if own || seq%5 == 0 {
			at := &net.UDPAddr{IP: net.ParseIP(t.Addr), Port: witnessPort}
			_, _ = conn.WriteTo(fmt.Appendf(nil, "ask %s %d", w.self, seq), at)
		}
		if seq%5 == 0 {
			w.sendFrames(name, t, seq)
		}
	}
	if seq%5 == 0 {
		w.raw.send(broadcast, w.raw.dev.HardwareAddr, w.addr(), netip.AddrFrom4([4]byte{255, 255, 255, 255}), fmt.Appendf(nil, "frame %s %d", w.self, seq))
	}
}

// sendFrames sends to another witness past all routing, in our own name and, if it is of
// another network, in that of every one there. It is called with mu held.
func (w *witness) sendFrames(name string, t *witnessed, seq int) {
	to, err := netip.ParseAddr(t.Addr)
	mac, macErr := net.ParseMAC(t.MAC)
	if err != nil || macErr != nil {
		return
	}
	payload := fmt.Appendf(nil, "frame %s %d", w.self, seq)
	w.raw.send(mac, w.raw.dev.HardwareAddr, w.addr(), to, payload)
	w.raw.send(broadcast, w.raw.dev.HardwareAddr, w.addr(), to, payload)
	for n, other := range w.to {
		from, err := netip.ParseAddr(other.Addr)
		src, macErr := net.ParseMAC(other.MAC)
		if network(name) != network(w.self) && network(n) == network(name) && other != t && err == nil && macErr == nil {
			w.raw.send(mac, src, from, to, payload)
		}
	}
}

// addr is our own address: the interface has one.
func (w *witness) addr() netip.Addr {
	all, _ := w.raw.dev.Addrs()
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
			return p.Addr()
		}
	}
	return netip.IPv4Unspecified()
}

// overdue is about what was sent before: it is answered, or lost.
func (w *witness) overdue(name string, t *witnessed, before time.Time) {
	for ; len(t.sent) > 0 && !t.sent[0].at.After(before); t.sent = t.sent[1:] {
		switch s := t.sent[0]; {
		case s.answered && t.down:
			t.down, t.lost.Until = false, s.at
			w.say(t.lost)
		case s.answered || !t.met:
		case t.down:
			t.lost.N++
		default:
			t.down, t.lost = true, Sighting{Kind: "lost", To: name, From: s.at, N: 1}
		}
	}
}

func (w *witness) receive(conn net.PacketConn) {
	buf := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			continue // of a datagram before
		}
		var verb, name string
		var seq int
		if _, err := fmt.Sscanf(string(buf[:n]), "%s %s %d", &verb, &name, &seq); err != nil || !strings.Contains(name, "/") {
			continue
		}
		if verb == "ask" && network(name) == network(w.self) {
			_, _ = conn.WriteTo(fmt.Appendf(nil, "answer %s %d", w.self, seq), from)
		}
		w.note(verb, name, seq)
	}
}

// note is about a datagram that came.
func (w *witness) note(verb, name string, seq int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := now()
	t := w.to[name]
	switch {
	case network(name) != network(w.self):
		w.say(Sighting{Kind: "crossed", To: name, From: now, Until: now})
	case t == nil:
	case verb == "frame":
		if !t.framed {
			t.framed = true
			w.say(Sighting{Kind: "framed", To: name, From: now, Until: now})
		}
	case verb != "answer":
	case !t.met:
		t.met, t.sent = true, nil // what was sent before it was there
		w.say(Sighting{Kind: "met", To: name, From: now, Until: now})
	default:
		if i := slices.IndexFunc(t.sent, func(s sent) bool { return s.seq == seq }); i >= 0 {
			t.sent[i].answered = true
		}
	}
}

// serve echoes.
func (w *witness) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}()
	}
}

// connect keeps a TCP connection to another witness, with an echo at every tick.
func (w *witness) connect(ctx context.Context, name, addr string) {
	at := net.JoinHostPort(addr, strconv.Itoa(witnessPort))
	for ; ctx.Err() == nil; time.Sleep(2 * witnessTick) {
		conn, err := net.DialTimeout("tcp", at, time.Second)
		if err != nil {
			continue
		}
		w.mu.Lock()
		w.say(Sighting{Kind: "joined", To: name, From: now(), Until: now()})
		w.mu.Unlock()
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // it may be waiting for an echo
		last, why := echoes(ctx, conn)
		stop()
		_ = conn.Close()
		if ctx.Err() != nil {
			return
		}
		w.mu.Lock()
		w.say(Sighting{Kind: "reset", To: name, From: last, Until: now(), Why: why.Error()})
		w.mu.Unlock()
	}
}

// echoes returns when the last byte came back, and why no other did.
func echoes(ctx context.Context, conn net.Conn) (last time.Time, err error) {
	one := make([]byte, 1)
	for last = now(); ctx.Err() == nil; time.Sleep(witnessTick) {
		_ = conn.SetDeadline(now().Add(witnessSilence))
		if _, err := conn.Write(one); err != nil {
			return last, err
		}
		if _, err := conn.Read(one); err != nil {
			return last, err
		}
		last = now()
	}
	return last, ctx.Err()
}

// Flood has the host send garbage to a UDP and TCP port, a thousand times a second, for so long.
func Flood(ctx context.Context, h *Host, to string, during time.Duration) error {
	_, err := h.machine.server().run(ctx, request{
		Argv: []string{labhost, "-for", during.String(), to}, Env: []string{roleVar + "=" + roleFlood},
	})
	return err
}

func floodMain(args []string) error {
	flags := flag.NewFlagSet("flood", flag.ContinueOnError)
	during := flags.Duration("for", time.Second, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	random, err := os.Open("/dev/urandom")
	if err != nil {
		return err
	}
	defer random.Close()
	udp, err := net.Dial("udp", flags.Arg(0))
	if err != nil {
		return err
	}
	buf := make([]byte, 1400)
	tick := time.NewTicker(time.Millisecond)
	for n, end := 0, time.Now().Add(*during); time.Now().Before(end); n++ {
		<-tick.C
		if _, err := io.ReadFull(random, buf); err != nil {
			return err
		}
		buf[0] = byte(n) // every type of message there is
		_, _ = udp.Write(buf[:1+int(buf[1])*5])
		if n%20 != 0 {
			continue
		}
		if tcp, err := net.DialTimeout("tcp", flags.Arg(0), time.Second); err == nil {
			_, _ = tcp.Write(buf)
			defer tcp.Close() // left open: they are to be ended by the other side
		} else if errors.Is(err, os.ErrPermission) {
			return err
		}
	}
	return nil
}
