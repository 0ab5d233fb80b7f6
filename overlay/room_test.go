package overlay

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// TestRoom: near the end of the room the largest callers begin no more, and nobody when all is taken. Who has few again does, when there
// is room everybody. A caller is a container with all of its addresses; a gateway is none, nor is an address that nobody has any more.
func TestRoom(t *testing.T) {
	a4, a6, b, d := addr("10.128.0.7"), addr("fd00:1::7"), addr("10.128.0.8"), addr("10.128.0.9")
	outside, gateway, nobody := addr("203.0.113.5"), addr("10.128.0.1"), addr("10.128.0.99")
	who := func(names map[string][]netip.Addr) owners {
		o := owners{of: map[netip.Addr]string{}, all: names, subnets: []netip.Prefix{prefix("10.128.0.0/22"), prefix("fd00:1::/64")}, gateways: []netip.Addr{gateway}}
		for name, list := range names {
			for _, a := range list {
				o.of[a] = name
			}
		}
		return o
	}
	usual := who(map[string][]netip.Addr{"a": {a4, a6}, "b": {b}, "d": {d}})
	crowd := func(list ...netip.Addr) (crowds []pipeline.Crowd) {
		for _, a := range list {
			crowds = append(crowds, pipeline.Crowd{Addr: a})
		}
		return crowds
	}
	full := func(list ...netip.Addr) []pipeline.Crowd {
		return slices.Concat(crowd(netip.Addr{}), []pipeline.Crowd{{Addr: gateway, Spared: true}}, crowd(list...))
	}
	type counts map[netip.Addr]int
	type step struct {
		has     int // of 1000
		after   time.Duration
		own     *owners // nil: usual
		callers counts  // nil: nobody asks
		fails   bool
		want    []pipeline.Crowd
		gone    []netip.Addr
	}
	removed := who(map[string][]netip.Addr{"b": {b}, "d": {d}})
	another := who(map[string][]netip.Addr{"a2": {a4}, "b": {b}, "d": {d}})
	for name, steps := range map[string][]step{
		"below seven eighths nobody is asked": {{has: 500}, {has: 874}, {has: 875, callers: counts{b: 125}}, {has: 900}, {has: 906, callers: counts{b: 125}}, {has: 906, after: roomAgain, callers: counts{}}},
		"the largest is cut, and no other while it is enough": {{has: 900, callers: counts{a4: 640, b: 200}, want: crowd(a4, a6)}, {has: 905, want: crowd(a4, a6)},
			{has: 950, callers: counts{a4: 640, b: 300}, want: crowd(a4, a6)}},
		"the next one is, when it grows": {{has: 900, callers: counts{a4: 450, b: 440}, want: crowd(a4, a6)}, {has: 990, callers: counts{a4: 450, b: 530}, want: crowd(a4, b, a6)}},
		"it begins again by itself, below half of what it had, as others have no room": {{has: 900, callers: counts{b: 800}, want: crowd(b)}, {has: 890, after: roomAgain, callers: counts{b: 400, d: 120}, want: crowd(b)},
			{has: 880, after: roomAgain, callers: counts{b: 399, d: 120}, want: crowd(b)}, {has: 800, after: roomAgain, callers: counts{b: 198, d: 120}}},
		"also between three quarters and seven eighths callers are asked again": {{has: 900, callers: counts{b: 300}, want: crowd(b)}, {has: 800, want: crowd(b)}, {has: 800, after: roomAgain, callers: counts{b: 10}}},
		"about the bound it stays":                      {{has: 880, callers: counts{b: 800}, want: crowd(b)}, {has: 860, want: crowd(b)}, {has: 880, after: roomAgain, callers: counts{b: 780}, want: crowd(b)}, {has: 750, want: crowd(b)}, {has: 749}},
		"a container's addresses are one caller's":      {{has: 900, callers: counts{a4: 70, a6: 70}, want: crowd(a4, a6)}},
		"who is outside is by address":                  {{has: 900, callers: counts{outside: 300}, want: crowd(outside)}},
		"a gateway is no caller":                        {{has: 900, callers: counts{gateway: 800, b: 100}}},
		"when all is taken, gateways still begin":       {{has: 1000, callers: counts{gateway: 900}, want: full()}, {has: 875, want: full()}, {has: 874}},
		"nobody's address is no caller":                 {{has: 900, callers: counts{nobody: 800}}},
		"who is removed is none any more, at once":      {{has: 900, callers: counts{a4: 800}, want: crowd(a4, a6)}, {has: 900, own: &removed, gone: []netip.Addr{a4, a6}}},
		"nor is who has its address next":               {{has: 900, callers: counts{a4: 800}, want: crowd(a4, a6)}, {has: 900, own: &another, after: roomAgain, callers: counts{a4: 800}, gone: []netip.Addr{a4, a6}}},
		"all is taken also when callers are not told":   {{has: 1000, callers: counts{}, fails: true, want: full()}, {has: 1000, want: full()}, {has: 1000, after: roomLooks, callers: counts{b: 900}, want: full(b)}},
		"and what was known holds":                      {{has: 900, callers: counts{b: 800}, want: crowd(b)}, {has: 1000, callers: counts{}, fails: true, want: full(b)}},
		"and it is not asked without end when it fails": {{has: 900, callers: counts{}, fails: true}, {has: 901}, {has: 901, after: roomLooks, callers: counts{}, fails: true}},
	} {
		t.Run(name, func(t *testing.T) {
			var r room
			now := time.Now()
			for _, s := range steps {
				now = now.Add(s.after)
				own, was, asked := usual, r.crowds, false
				if s.own != nil {
					own = *s.own
				}
				changed, gone, err := r.follow(1000, s.has, now, own, func() (map[netip.Addr]int, error) {
					asked = true
					if s.fails {
						return nil, errors.New("no answer")
					}
					return maps.Clone(s.callers), nil
				})
				if (err != nil) != s.fails || asked != (s.callers != nil) || !slices.Equal(r.crowds, s.want) || changed == slices.Equal(was, r.crowds) || !slices.Equal(gone, s.gone) {
					t.Errorf("with %d connections: %v, gone %v, error %v, asked %v, changed %v; want %v, gone %v", s.has, r.crowds, gone, err, asked, changed, s.want, s.gone)
				}
			}
		})
	}
}

// TestOwners: the endpoints of a container are one caller, in all networks.
func TestOwners(t *testing.T) {
	w := newWorld(t)
	w.put(network("blue", 5), network("green", 6), subnet("10.128.0.0/22", "blue", "10.128.0.1"), subnet("10.129.0.0/22", "green", "10.129.0.1"))
	first, second, other := endpoint(me, 'a', "blue", "10.128.0.7"), endpoint(me, 'b', "green", "10.129.0.7"), endpoint(me, 'c', "blue", "10.128.0.8")
	first.Container, second.Container = "web", "web"
	for _, e := range []cluster.Endpoint{first, second, other} {
		w.put(e)
	}
	own := ownersOf(w.Snapshot())
	for a, want := range map[string]string{"10.128.0.7": "web", "10.129.0.7": "web", "10.128.0.8": other.ID, "10.128.0.9": "", "10.128.0.1": "", "203.0.113.5": "203.0.113.5"} {
		if got := own.whose(addr(a)); got != want {
			t.Errorf("%s is %q's; want %q", a, got, want)
		}
	}
	if got, want := own.addrs("web"), []netip.Addr{addr("10.128.0.7"), addr("10.129.0.7")}; !slices.Equal(got, want) {
		t.Errorf("it has %v; want %v", got, want)
	}
}

// TestCrowd: a container that opens connections without end begins no more when it has too many, and what it has begun goes on; others
// begin theirs. When there is room for nobody's, nobody begins any but the host, and who asks its resolver, and the switch's own bound
// holds without an agent.
func TestCrowd(t *testing.T) {
	r := newRuled(t)
	own := owners{of: map[netip.Addr]string{}, all: map[string][]netip.Addr{}, gateways: []netip.Addr{addr("10.128.0.1")}}
	for _, p := range r.in.Ports {
		own.all[p.Endpoint] = p.Addrs
		for _, a := range p.Addrs {
			own.of[a] = p.Endpoint
		}
	}
	serve(t, "b", 80)
	rules := slices.Concat(lets(1, 2), lets(3, 2))
	enforce := func(crowds ...pipeline.Crowd) {
		t.Helper()
		p := r.policy("abc", 1)
		for i, rule := range rules {
			rule.ID, rule.Action, rule.Priority = uint32(i+1), pipeline.Accept, pipeline.PriorityNetworkPolicy
			p.Rules = append(p.Rules, rule)
		}
		p.Crowds = crowds
		r.enforce(p)
	}
	enforce()
	to := func(ip6 bool) string {
		if ip6 {
			return "[fd00:1::8]:80"
		}
		return "10.128.0.8:80"
	}
	var open []net.Conn
	for _, ip6 := range []bool{false, true} {
		c, err := call(t, "a", "tcp", to(ip6), long)
		if err == nil {
			err = comesBack(c, long)
		}
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	if err := r.bridge.LimitConnections(t.Context(), pipeline.Zone, bound(400)); err != nil {
		t.Fatal(err)
	}
	var seen room
	look := func(n, least int) { // when all n that are sent have come to the switch, or as much as it takes: on a busy machine it misses some
		t.Helper()
		var now ovs.Space
		ovstest.Eventually(t, long, func() (err error) {
			flood(t, "a", "10.128.0.8:80", n)
			if now, err = r.bridge.Connections(t.Context(), pipeline.Zone); err == nil && now.Has < least {
				err = fmt.Errorf("there are %d connections", now.Has)
			}
			return err
		})
		if now.Limit != 500 {
			t.Errorf("the switch takes %d", now.Limit)
		}
		if _, _, err := seen.follow(400, now.Has, time.Now(), own, func() (map[netip.Addr]int, error) { return r.bridge.Callers(t.Context(), pipeline.Zone) }); err != nil {
			t.Fatal(err)
		}
	}
	look(360, 360)
	if want := []pipeline.Crowd{{Addr: addr("10.128.0.7")}, {Addr: addr("fd00:1::7")}}; !slices.Equal(seen.crowds, want) {
		t.Fatalf("of %d connections: %v; want %v", seen.has, seen.crowds, want)
	}
	enforce(seen.crowds...)
	begins := func(from string, ip6 bool) error {
		for _, network := range []string{"tcp", "udp"} {
			c, err := call(t, from, network, to(ip6), short)
			if err == nil {
				err = comesBack(c, short)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", network, err)
			}
			_ = c.Close()
		}
		return nil
	}
	for _, ip6 := range []bool{false, true} {
		for _, network := range []string{"tcp", "udp"} {
			c, err := call(t, "a", network, to(ip6), short)
			if err == nil && comesBack(c, short) == nil {
				t.Errorf("a begins one more, of %s to %s", network, to(ip6))
			}
		}
	}
	for _, who := range []struct {
		name string
		ip6  bool
	}{{"c", false}, {"c", true}} {
		ovstest.Eventually(t, long, func() error { return begins(who.name, who.ip6) })
	}
	for _, c := range open {
		if err := comesBack(c, long); err != nil {
			t.Error("what is open:", err)
		}
	}
	counted := func(reason pipeline.Reason) (packets uint64) {
		t.Helper()
		flows, err := r.bridge.DumpFlows(t.Context(), fmt.Sprintf("table=%d", pipeline.Connection))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range flows {
			if c := pipeline.ParseCookie(f.Cookie); c.Kind == pipeline.KindDrop && c.Object == uint64(reason) {
				packets += f.Packets
			}
		}
		return packets
	}
	if counted(pipeline.DropCrowd) == 0 || counted(pipeline.DropFull) > 0 {
		t.Errorf("dropped: %d of a crowd, %d for want of room", counted(pipeline.DropCrowd), counted(pipeline.DropFull))
	}
	// Nobody's: c has none of its own, but there is no room.
	spared := pipeline.Crowd{Addr: addr("10.128.0.1"), Spared: true}
	enforce(pipeline.Crowd{}, spared)
	for _, from := range []string{"a", "c"} {
		if begins(from, true) == nil || begins(from, false) == nil {
			t.Error(from, "begins one where there is no room")
		}
	}
	for _, c := range open {
		if err := comesBack(c, long); err != nil {
			t.Error("what is open:", err)
		}
	}
	if counted(pipeline.DropFull) == 0 {
		t.Error("nothing is counted that there is no room for")
	}
	if err := echoAt(t, "10.128.0.1:53"); err != nil {
		t.Fatal(err)
	}
	for _, network := range []string{"tcp", "udp"} {
		c, err := net.DialTimeout(network, to(false), long)
		if err == nil {
			err = comesBack(c, long)
			_ = c.Close()
		}
		if err != nil {
			t.Errorf("the host begins none by %s: %v", network, err)
		}
	}
	asks := func(from string, wait time.Duration) error {
		for _, network := range []string{"tcp", "udp"} {
			c, err := call(t, from, network, "10.128.0.1:53", wait)
			if err == nil {
				err = comesBack(c, wait)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", network, err)
			}
		}
		return nil
	}
	ovstest.Eventually(t, long, func() error { return asks("c", long) })
	enforce(pipeline.Crowd{}, spared, pipeline.Crowd{Addr: addr("10.128.0.9")})
	if asks("c", short) == nil {
		t.Error("who has too many begins questions")
	}
	// Without an agent the switch itself takes no more.
	enforce()
	look(1000, 500)
	if seen.has > 500 {
		t.Errorf("there are %d connections", seen.has)
	}
	if want := []pipeline.Crowd{{}, spared, {Addr: addr("10.128.0.7")}, {Addr: addr("fd00:1::7")}}; !slices.Equal(seen.crowds, want) {
		t.Errorf("%v; want %v", seen.crowds, want)
	}
	for _, c := range open {
		if err := comesBack(c, long); err != nil {
			t.Error("what is open:", err)
		}
	}
}

// TestCrowded: the loop sees who has too many, says so, and lets it begin again when there is room.
func TestCrowded(t *testing.T) {
	h := newHost(t)
	h.stop()
	var limit atomic.Int32
	limit.Store(400)
	h.room = func() int { return int(limit.Load()) }
	h.start()
	first := labelled(h.container('a', "blue", "10.128.0.7", "10.128.0.1"), "app", "web")
	h.put(first)
	h.put(labelled(h.container('b', "blue", "10.128.0.8", "10.128.0.1"), "app", "db"))
	h.put(policyOf("db", "{podSelector: {matchLabels: {app: db}}, ingress: [{}]}"))
	ovstest.Eventually(t, time.Minute, func() error {
		now, err := h.bridge.Connections(t.Context(), pipeline.Zone)
		if err == nil && now.Limit != bound(400) {
			err = fmt.Errorf("it has %+v", now)
		}
		return err
	})
	h.reaches("a", "10.128.0.8")
	if err := inNamespace("a", func() error { return flooding("10.128.0.8:80", 1000) }); err != nil {
		t.Fatal(err)
	}
	crowded := func(want bool) func() error {
		return func() error {
			most, _, has, room := h.Crowded()
			if slices.ContainsFunc(most, func(c Caller) bool { return slices.Contains(c.Addrs, addr("10.128.0.7")) }) != want {
				return fmt.Errorf("%v of %d, and there is room for %d", most, has, room)
			}
			return nil
		}
	}
	ovstest.Eventually(t, time.Minute, crowded(true))
	h.dropped("connection: drop: "+pipeline.DropCrowd.String(), func() {
		if err := inNamespace("a", func() error { return flooding("10.128.0.8:81", 50) }); err != nil {
			t.Fatal(err)
		}
	})
	limit.Store(100_000)
	ovstest.Eventually(t, time.Minute, crowded(false))
	ovstest.Eventually(t, time.Minute, func() error { return ping("a", "10.128.0.8") })
	limit.Store(400)
	ovstest.Eventually(t, time.Minute, crowded(true))
	h.end(me, first.Key())
	ovstest.Eventually(t, time.Minute, crowded(false))
	ovstest.Eventually(t, time.Minute, func() error { // who gets its address next has not its connections
		callers, err := h.bridge.Callers(t.Context(), pipeline.Zone)
		if n := callers[addr("10.128.0.7")]; err == nil && n > 10 {
			err = fmt.Errorf("it has %d", n)
		}
		return err
	})
}

// flood begins as many connections of UDP from a container, each from another port.
func flood(t *testing.T, container, to string, n int) {
	t.Helper()
	if err := inNetns(t, container, func() error { return flooding(to, n) }); err != nil {
		t.Fatal(err)
	}
}

// flooding begins n connections of UDP, from ports that Linux gives nobody by itself: those who call beside it have others.
func flooding(to string, n int) error {
	const beyond = 61000
	far, err := net.ResolveUDPAddr("udp", to)
	if err != nil {
		return err
	}
	for i := range n {
		c, err := net.DialUDP("udp", &net.UDPAddr{Port: beyond + i}, far)
		if err != nil {
			return err
		}
		_, err = c.Write([]byte(strings.Repeat("x", 20)))
		_ = c.Close()
		if err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			return err
		}
		if i%50 == 0 {
			time.Sleep(10 * time.Millisecond)
		}
	}
	return nil
}
