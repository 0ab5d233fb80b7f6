package overlay

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/policy/answers"
)

// ledger keeps what was told as the disk does.
type ledger struct {
	mu   sync.Mutex
	list []policy.Answer
}

func (l *ledger) Load() ([]policy.Answer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list), nil
}

func (l *ledger) Save(list []policy.Answer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = slices.Clone(list)
	return nil
}

// job makes a container that reaches others by these names alone.
func (h *host) job(letter byte, address, names string) cluster.Endpoint {
	h.t.Helper()
	e := labelled(endpoint(me, letter, "blue", address), "grapevine.io/name", string(letter), "grapevine.to", names)
	ovstest.Container(h.t, string(letter), link.PortName(e.ID), macOf(letter), address+"/22", "10.128.0.1")
	h.put(e)
	ctx, cancel := context.WithTimeout(h.t.Context(), 10*time.Second)
	defer cancel()
	if err := h.Attach(ctx, e.ID, link.PortName(e.ID)); err != nil {
		h.t.Fatal(err)
	}
	return e
}

// openings are the addresses that the switch has open to an address now: "past" are those for open connections alone.
func (h *host) openings(from string) string {
	h.t.Helper()
	flows, err := h.bridge.DumpFlows(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	var list []string
	for _, f := range flows {
		_, to, is := strings.Cut(f.Match, "ct_nw_dst=")
		if !is || !strings.Contains(f.Match, "ct_nw_src="+from+",") || !strings.Contains(f.Match, "reg") {
			continue
		}
		to, _, _ = strings.Cut(to, ",")
		if strings.Contains(f.Match, "ct_state=-new") {
			to += " past"
		}
		list = append(list, to)
	}
	slices.Sort(list)
	return strings.Join(slices.Compact(list), ", ")
}

func told1(addrs ...string) (list []answers.Told) {
	for _, a := range addrs {
		list = append(list, answers.Told{Addr: netip.MustParseAddr(a), TTL: time.Second})
	}
	return list
}

// TestOpen: what a container is told by a name of its rules is open in the switch when Open returns, to it alone; it is
// closed after its time, and then for connections that are open alone; and an agent that is started anew keeps it.
func TestOpen(t *testing.T) {
	h := newHost(t)
	h.stop()
	kept := &ledger{}
	h.told = kept
	h.near = func(a netip.Addr) string {
		if a == netip.MustParseAddr("172.17.0.1") {
			return "this host's own"
		}
		return ""
	}
	h.start()
	a, b := h.job('a', "10.128.0.7", "api.example.com:443, *.pypi.org"), h.job('b', "10.128.0.8", "api.example.com:443")
	for name, want := range map[string]bool{"api.example.com": true, "x.pypi.org": true, "pypi.org": false, "x.api.example.com": false} {
		if got := h.Covers(a.ID, name); got != want {
			t.Errorf("%s is covered: %t", name, got)
		}
	}
	if h.Covers(b.ID, "x.pypi.org") {
		t.Error("one container's names are another's")
	}
	open := func(e cluster.Endpoint, name string, addrs ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := h.Open(ctx, e.ID, name, told1(addrs...)); err != nil {
			t.Fatal(err)
		}
	}
	is := func(from, want string) {
		t.Helper()
		if got := h.openings(from); got != want {
			t.Errorf("open to %s are %q, want %q", from, got, want)
		}
	}
	is("10.128.0.7", "")
	for i := range 20 { // at once, each time
		open(a, "api.example.com", fmt.Sprintf("198.51.100.%d", i+1))
		if got := h.openings("10.128.0.7"); strings.Count(got, "198.51.100.") != i+1 {
			t.Fatalf("after %d answers open are %q", i+1, got)
		}
	}
	is("10.128.0.8", "")
	h.put(cluster.Addresses{Host: me, List: []netip.Addr{netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("2001:db8::9")}})
	open(b, "api.example.com", "203.0.113.9", "2001:db8::9", "fd67:7261:7065:1::7", "198.51.100.1", "127.0.0.1", "::1", "169.254.169.254", "224.0.0.1", "0.0.0.0", "255.255.255.255", "240.0.0.1", "10.128.0.7", "10.129.0.1", "192.0.2.1", "192.0.2.2", "172.17.0.1",
		"64:ff9b::a80:7", "64:ff9b:1::cb00:7109", "2002:808:808::1", "fec0::1", "::ffff:10.128.0.7", "fe80::1", "ff02::1")
	is("10.128.0.8", "198.51.100.1")

	// Its time is over. (Its own clock would take a minute.)
	h.Overlay.told.expire(time.Now().Add(answers.Grace + 2*time.Second))
	if err := h.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	is("10.128.0.8", "198.51.100.1 past")
	open(b, "api.example.com", "198.51.100.1")
	is("10.128.0.8", "198.51.100.1")

	// The next agent knows it, and the switch never lost it; what an agent forgets is closed.
	h.stop()
	is("10.128.0.8", "198.51.100.1")
	h.start()
	if err := h.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	is("10.128.0.8", "198.51.100.1")
	h.stop()
	kept.list = nil
	h.start()
	if err := h.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	is("10.128.0.8", "")
	open(b, "api.example.com", "198.51.100.1")
	is("10.128.0.8", "198.51.100.1")

	// Of who has gone nothing is remembered.
	h.end(me, a.Key())
	h.end(me, b.Key())
	if err := h.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if list := h.Answers(); len(list) > 0 {
		t.Errorf("of containers that have gone is known %v", list)
	}
}

// changing is what a host reaches, and tells when that changes.
type changing struct {
	mu sync.Mutex
	ch chan struct{}
}

func (c *changing) Watch() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ch
}

func (c *changing) change() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.ch)
	c.ch = make(chan struct{})
}

func (*changing) Judge(*cluster.Snapshot) (map[netip.Prefix]bool, []netip.Prefix) { return nil, nil }
func (*changing) Own() []netip.Addr                                               { return nil }

// TestClosedSinceInside: what a name opened is closed as soon as it is something inside, long before its time is over: a
// new address of another host, one of this host, a new subnet. Nobody asks for a name meanwhile.
func TestClosedSinceInside(t *testing.T) {
	h := newHost(t)
	h.stop()
	here := &changing{ch: make(chan struct{})}
	var own sync.Map
	asked, hangs := make(chan struct{}, 1), make(chan struct{})
	h.near = func(a netip.Addr) string {
		why, is := own.Load(a)
		if why == "hangs" {
			select {
			case asked <- struct{}{}:
			default:
			}
			<-hangs
		}
		if is {
			return "this host's own"
		}
		return ""
	}
	h.reach = here
	h.start()
	a := h.job('a', "10.128.0.7", "api.example.com:443")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	list := told1("198.51.100.1", "198.51.100.2", "198.51.100.3", "203.0.113.7")
	for i := range list {
		list[i].TTL = time.Hour
	}
	if err := h.Open(ctx, a.ID, "api.example.com", list); err != nil {
		t.Fatal(err)
	}
	closes := func(what, want string) {
		t.Helper()
		var got string
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if got = h.openings("10.128.0.7"); got == want {
				return
			}
		}
		t.Fatalf("%s: open are %q, want %q", what, got, want)
	}
	closes("told", "198.51.100.1, 198.51.100.2, 198.51.100.3, 203.0.113.7")
	h.put(cluster.Addresses{Host: me, List: []netip.Addr{netip.MustParseAddr("198.51.100.2")}})
	closes("a host's new address", "198.51.100.1, 198.51.100.3, 203.0.113.7")
	h.put(network("new", 9), subnet("203.0.113.0/24", "new", "203.0.113.1"))
	closes("a new subnet", "198.51.100.1, 198.51.100.3")
	own.Store(netip.MustParseAddr("198.51.100.3"), true)
	here.change()
	closes("this host's new address", "198.51.100.1")
	if list := h.Answers(); len(list) != 1 {
		t.Errorf("open are %v", list)
	}

	// However long the kernel takes to say what this host has: nobody waits for that.
	own.Store(netip.MustParseAddr("198.51.100.1"), "hangs")
	here.change()
	<-asked
	if err := h.Open(ctx, a.ID, "api.example.com", told1("198.51.100.9")); err != nil {
		t.Errorf("another address, while the kernel takes its time: %v", err)
	}
	close(hangs)
	closes("at last", "198.51.100.9")
}

// TestTurns: of one container so many answers wait for the switch at the same time, and its others for these; another
// container's do not. Whoever gives up takes no place.
func TestTurns(t *testing.T) {
	o := newTold(Config{})
	var done []func()
	for range abreast {
		end, err := o.turn(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		done = append(done, end)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := o.turn(over, "a"); err == nil {
		t.Error("one more does not wait")
	}
	other, err := o.turn(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan func())
	go func() {
		end, err := o.turn(t.Context(), "a")
		if err != nil {
			t.Error(err)
		}
		next <- end
	}()
	select {
	case <-next:
		t.Error("it has not waited")
	default:
	}
	done[0]()
	done[0] = <-next
	for _, end := range append(done, other) {
		end()
	}
	if len(o.turns) > 0 {
		t.Errorf("nobody waits, and known are %d", len(o.turns))
	}
}
