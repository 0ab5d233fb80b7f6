package secure

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
	"github.com/grapevine-net/grapevine/host/wireguard"
	"github.com/grapevine-net/grapevine/membership/identity"
)

// keyed is a host with its keeper in a namespace of its own.
type keyed struct {
	*linktest.NS
	*Keeper
	id   cluster.NodeID
	at   netip.Addr
	dir  string
	snap *cluster.Snapshot
	more []cluster.Node // hosts that it hears of besides
}

func (h *keyed) Snapshot() *cluster.Snapshot { return h.snap }
func (h *keyed) Watch() <-chan struct{}      { return nil }

// agent is one that begins on the host.
func (h *keyed) agent(t *testing.T) {
	key, err := identity.LoadWireGuard(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	h.Keeper = New(Config{
		Self: h.id, Key: key, Port: 7948, Second: 7950, All: true, Run: h.dir, Log: slog.New(slog.DiscardHandler), Keys: identity.WireGuardKeys{Dir: h.dir},
		Tell: func() error { return nil }, Underlay: link.Underlay{Interface: "eth0", Addr: h.at, MTU: 1500},
	})
	h.Follow(h)
}

func (h *keyed) node() (n cluster.Node) {
	n = cluster.Node{ID: h.id, Name: "host" + string(h.id[0]), Gossip: netip.AddrPortFrom(h.at, 7947)}
	n.WireGuard, n.KeyProof, n.WireGuardAt, n.Turn = h.Record(h.snap)
	return n
}

// round has all that are given look at their devices and take a step, and then hear of each other.
func round(t *testing.T, all []*keyed, act ...*keyed) {
	t.Helper()
	for _, h := range act {
		h.Do(func() {
			if err := h.Ensure(t.Context()); err != nil {
				t.Fatal(err)
			}
			h.advance(t.Context())
		})
	}
	var nodes []cluster.Node
	for _, h := range all {
		nodes = append(nodes, h.node())
	}
	for _, h := range act {
		h.snap = told(t, slices.Concat(nodes, h.more))
	}
}

// told is what somebody else knows who has heard of all.
func told(t *testing.T, nodes []cluster.Node) *cluster.Snapshot {
	s := cluster.New(three)
	for _, n := range nodes {
		r, _, err := cluster.New(n.ID).Put(n)
		if err == nil {
			_, err = s.Merge([]cluster.Record{r})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return s.Snapshot()
}

func newKeyed(t *testing.T) []*keyed {
	a := &keyed{NS: linktest.New(t), id: one, at: netip.MustParseAddr("192.0.2.1"), dir: t.TempDir(), snap: snapshot(t)}
	b := &keyed{NS: linktest.New(t), id: two, at: netip.MustParseAddr("192.0.2.2"), dir: t.TempDir(), snap: snapshot(t)}
	linktest.Wire(t, "eth0", a.NS, b.NS, []string{"192.0.2.1/24"}, []string{"192.0.2.2/24"})
	for _, h := range []*keyed{a, b} {
		h.agent(t)
		t.Cleanup(func() { h.Do(func() { _, _ = Purge(h.dir) }) })
	}
	return []*keyed{a, b}
}

// stream sends numbered datagrams from one to the other until it is stopped, and says how many there were, and how many
// arrived.
func stream(t *testing.T, from, to *keyed) (stop func() (sent, heard int)) {
	var in, out net.Conn
	var listener *net.UDPConn
	var err error
	at := &net.UDPAddr{IP: cluster.SecureVTEP(to.id).AsSlice(), Port: 4789}
	to.Do(func() { listener, err = net.ListenUDP("udp6", at) })
	if err != nil {
		t.Fatal(err)
	}
	from.Do(func() { out, err = net.DialUDP("udp6", nil, at) })
	if err != nil {
		t.Fatal(err)
	}
	in = listener
	ctx, cancel := context.WithCancel(t.Context())
	sent, heard, done := 0, 0, make(chan struct{}, 2)
	go func() {
		defer func() { done <- struct{}{} }()
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if _, err := out.Write([]byte("number")); err == nil {
				sent++
			}
		}
	}()
	go func() {
		defer func() { done <- struct{}{} }()
		for {
			if _, err := in.Read(make([]byte, 16)); errors.Is(err, net.ErrClosed) {
				return
			} else if err == nil {
				heard++
			}
		}
	}()
	return func() (int, int) {
		cancel()
		<-done
		out.Close()
		time.Sleep(300 * time.Millisecond)
		in.Close()
		<-done
		return sent, heard
	}
}

// both reports whether two hosts have heard each other on a device, the first or the second one.
func both(all []*keyed, which int) bool { return all[0].heard[which][two] && all[1].heard[which][one] }

// meet has two hosts have a session.
func meet(t *testing.T, all []*keyed) {
	t.Helper()
	a, b := all[0], all[1]
	for end := time.Now().Add(20 * time.Second); !both(all, 0); time.Sleep(50 * time.Millisecond) {
		round(t, all, a, b)
		a.Do(func() {
			if c, err := net.Dial("udp6", net.JoinHostPort(cluster.SecureVTEP(two).String(), "9")); err == nil {
				_, _ = c.Write([]byte("hello"))
				c.Close()
			}
		})
		if time.Now().After(end) {
			t.Fatalf("no session: %+v %+v %+v %+v", a.heard, b.heard, a.said, b.said)
		}
	}
}

// TestAnOlderAgentComesMeanwhile: hosts that have begun to change their keys wait for a host whose agent does not know how, and that
// has no second device, and go on when it does.
func TestAnOlderAgentComesMeanwhile(t *testing.T) {
	all := newKeyed(t)
	a, b := all[0], all[1]
	meet(t, all)
	a.order = true
	older := host(four, 4, "192.0.2.4:7948")
	until := func(what string, done func() bool) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not %s: %d (%s) and %d (%s)", what, a.now.turn, a.waits, b.now.turn, b.waits)
			}
			round(t, all, a, b)
		}
	}
	until("begun", func() bool { return a.now.step() == begun })
	a.more, b.more = []cluster.Node{older}, []cluster.Node{older}
	until("waiting for host4 alone", func() bool {
		if a.now.step() > begun || b.now.step() > begun || a.now.turn >= 2*steps || b.now.turn >= 2*steps {
			t.Fatalf("a host has gone on without the older one: %d (%s) and %d (%s)", a.now.turn, a.waits, b.now.turn, b.waits)
		}
		return both(all, 1) && strings.HasPrefix(a.waits, "host host4 ") && strings.HasPrefix(b.waits, "host host4 ")
	})
	a.more, b.more = nil, nil // it leaves
	until("at the end", func() bool { return a.now.turn == 2*steps && b.now.turn == 2*steps && !a.now.two && !b.now.two })
}

// TestKeysChange: two hosts change their keys while each sends to the other, and nothing is lost; one's agent begins anew
// in the midst of it.
func TestKeysChange(t *testing.T) {
	all := newKeyed(t)
	a, b := all[0], all[1]
	former := []wireguard.Key{a.now.first, b.now.first}
	meet(t, all)
	there, back := stream(t, a, b), stream(t, b, a)
	a.order = true
	anew := false
	for end := time.Now().Add(2 * time.Minute); a.now.turn != 2*steps || b.now.turn != 2*steps || a.now.two || b.now.two; time.Sleep(20 * time.Millisecond) {
		round(t, all, a, b)
		if step := b.now.step(); !anew && step == moved {
			b.agent(t)
			anew = true
		}
		if time.Now().After(end) {
			t.Fatalf("no end: %d (%s) and %d (%s)", a.now.turn, a.waits, b.now.turn, b.waits)
		}
	}
	for i, stop := range []func() (int, int){there, back} {
		if sent, heard := stop(); sent == 0 || heard != sent {
			t.Errorf("%s: %d of %d arrived", []string{"there", "back"}[i], heard, sent)
		} else {
			t.Logf("%d of %d arrived", heard, sent)
		}
	}
	for i, h := range all {
		key, err := identity.LoadWireGuard(h.dir)
		if err != nil || wireguard.Key(key) == former[i] || h.now.first != key {
			t.Errorf("%s has the key that it had: %v", h.id, err)
		}
		h.Do(func() {
			if _, err := link.Get(link.WireGuard2); !errors.Is(err, link.ErrNotFound) {
				t.Errorf("%s still has two devices: %v", h.id, err)
			}
		})
		if (identity.WireGuardKeys{Dir: h.dir}).HasSecond() {
			t.Errorf("%s still has %s", h.id, filepath.Join(h.dir, identity.SecondFile))
		}
	}
}
