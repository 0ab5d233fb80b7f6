package overlay

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// TestRoom: who has more than an eighth begins no more when half of the room is taken, nobody when all is, and everybody again when
// there is room.
func TestRoom(t *testing.T) {
	a, b := netip.MustParseAddr("10.128.0.7"), netip.MustParseAddr("fd00:1::8")
	var r room
	now, asked := time.Now(), 0
	for _, step := range []struct {
		has     int
		after   time.Duration
		callers map[netip.Addr]int
		asks    bool
		want    []pipeline.Crowd
	}{
		{has: 100},
		{has: 499},
		{has: 500, callers: map[netip.Addr]int{a: 125, b: 125}, asks: true},
		{has: 600},
		{has: 625, callers: map[netip.Addr]int{a: 126, b: 125}, asks: true, want: []pipeline.Crowd{{Addr: a}}},
		{has: 626, want: []pipeline.Crowd{{Addr: a}}},
		{has: 626, after: roomAgain, callers: map[netip.Addr]int{a: 100, b: 400}, asks: true, want: []pipeline.Crowd{{Addr: b}}},
		{has: 1000, callers: map[netip.Addr]int{a: 100, b: 400}, asks: true, want: []pipeline.Crowd{{}, {Addr: b}}},
		{has: 900, want: []pipeline.Crowd{{}, {Addr: b}}},
		{has: 874, want: []pipeline.Crowd{{Addr: b}}},
		{has: 300, want: []pipeline.Crowd{{Addr: b}}},
		{has: 249},
		{has: 500, callers: map[netip.Addr]int{a: 126}, asks: true, want: []pipeline.Crowd{{Addr: a}}},
	} {
		now = now.Add(step.after)
		before, was := asked, r.crowds
		changed, err := r.follow(1000, step.has, now, func() (map[netip.Addr]int, error) { asked++; return step.callers, nil })
		if err != nil || (asked > before) != step.asks || !slices.Equal(r.crowds, step.want) || changed == slices.Equal(was, r.crowds) {
			t.Errorf("with %d connections: %v, error %v, asked %v, changed %v; want %v", step.has, r.crowds, err, asked > before, changed, step.want)
		}
	}
}

// TestCrowd: a container that opens connections without end begins no more when it has too many, and what it has begun goes on; others
// begin theirs. When there is room for nobody's, nobody begins any, and the switch's own bound holds without an agent.
func TestCrowd(t *testing.T) {
	r := newRuled(t)
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
	flood(t, "a", "10.128.0.8:80", 200)
	var seen room
	look := func(least int) { // when all that was sent has come to the switch, or as much as it takes
		t.Helper()
		var now ovs.Room
		ovstest.Eventually(t, long, func() (err error) {
			if now, err = r.bridge.Connections(t.Context(), pipeline.Zone); err == nil && now.Has < least {
				err = fmt.Errorf("there are %d connections", now.Has)
			}
			return err
		})
		if now.Limit != 500 {
			t.Errorf("the switch takes %d", now.Limit)
		}
		if _, err := seen.follow(400, now.Has, time.Now(), func() (map[netip.Addr]int, error) { return r.bridge.Callers(t.Context(), pipeline.Zone) }); err != nil {
			t.Fatal(err)
		}
	}
	look(200)
	if want := []pipeline.Crowd{{Addr: addr("10.128.0.7")}}; !slices.Equal(seen.crowds, want) {
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
	for _, network := range []string{"tcp", "udp"} {
		c, err := call(t, "a", network, to(false), short)
		if err == nil && comesBack(c, short) == nil {
			t.Errorf("a begins one more, of %s", network)
		}
	}
	for _, who := range []struct {
		name string
		ip6  bool
	}{{"c", false}, {"c", true}, {"a", true}} { // by its IPv6 address it has few
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
	enforce(pipeline.Crowd{})
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
	// Without an agent the switch itself takes no more.
	enforce()
	flood(t, "a", "10.128.0.8:80", 1000)
	look(500)
	if seen.has > 500 {
		t.Errorf("there are %d connections", seen.has)
	}
	if want := []pipeline.Crowd{{}, {Addr: addr("10.128.0.7")}}; !slices.Equal(seen.crowds, want) {
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
	h.put(labelled(h.container('a', "blue", "10.128.0.7", "10.128.0.1"), "app", "web"))
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
			if (most[addr("10.128.0.7")] > 0) != want {
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
}

// flood begins as many connections of UDP from a container, each from another port.
func flood(t *testing.T, container, to string, n int) {
	t.Helper()
	if err := inNetns(t, container, func() error { return flooding(to, n) }); err != nil {
		t.Fatal(err)
	}
}

func flooding(to string, n int) error {
	far, err := net.ResolveUDPAddr("udp", to)
	if err != nil {
		return err
	}
	for i := range n {
		c, err := net.DialUDP("udp", &net.UDPAddr{Port: 33000 + i}, far)
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
