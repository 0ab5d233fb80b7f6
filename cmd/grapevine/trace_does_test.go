package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
)

// TestLostAt: between which two places a packet was lost follows from where it was seen last.
func TestLostAt(t *testing.T) {
	there := []api.TracePoint{{Host: "host1", Container: "app", Place: "eth0"}, {Host: "host1", Place: "ens3"}, {Host: "host2", Place: "ens4"}, {Host: "host2", Container: "db", Place: "eth0"}}
	both := func(there ...api.TracePoint) (list []api.TracePoint) {
		list = append(list, there...)
		for i := len(there) - 1; i >= 0; i-- {
			at := there[i]
			at.Back = true
			list = append(list, at)
		}
		return list
	}
	seen := func(n int, what string, points []api.TracePoint) *api.TracePacket {
		for i := range n {
			points[i].Seen = true
		}
		return &api.TracePacket{What: what, Points: points}
	}
	near := []api.TracePoint{there[0], {Host: "host1", Container: "db", Place: "eth0"}}
	for _, c := range []struct {
		packet *api.TracePacket
		want   string
	}{
		{nil, ""},
		{&api.TracePacket{Error: "it does not run"}, ""},
		{seen(0, "TCP SYN", both(there...)), "its packet does not leave it"},
		{seen(1, "TCP SYN", both(there...)), "the packet leaves app, and host host1 drops it before it leaves by ens3"},
		{seen(2, "TCP SYN", both(there...)), "the packet leaves host host1 by ens3 in VXLAN, and does not come to ens4 of host host2"},
		{seen(3, "TCP SYN", both(there...)), "the packet comes to host host2 at ens4 in VXLAN, and is dropped there before it is in db"},
		{seen(4, "TCP SYN", both(there...)), "the packet arrives in db, which does not answer"},
		{seen(4, "empty UDP datagram", both(there...)), ""},
		{seen(5, "TCP SYN", both(there...)), "the answer leaves db, and host host2 drops it before it leaves by ens4"},
		{seen(6, "TCP SYN", both(there...)), "the answer leaves host host2 by ens4 in VXLAN, and does not come to ens3 of host host1"},
		{seen(7, "TCP SYN", both(there...)), "the answer comes to host host1 at ens3 in VXLAN, and is dropped there before it is in app"},
		{seen(1, "TCP SYN", both(near...)), "the packet leaves app, and host host1 drops it before it is in db"},
		{seen(1, "TCP SYN", both(there[0], there[3])), "the packet leaves app on host host1, and is lost before it is in db on host host2"},
		{seen(1, "TCP SYN", both(near[0])), "the packet leaves app by eth0, and nothing comes back"},
		{&api.TracePacket{Answer: "refused", Points: both(near...)}, "nobody listens at that port"},
		{&api.TracePacket{Answer: "unreachable", Points: both(near...)}, "answers that it cannot be reached"},
		{&api.TracePacket{Answer: "open", Points: both(near...)}, ""},
	} {
		got, do := lostAt(c.packet, "db")
		if !strings.Contains(got, c.want) || (got == "") != (c.want == "") || (got == "") != (do == "") {
			t.Errorf("%+v: %q, %q, want %q", c.packet, got, do, c.want)
		}
	}
	if got := answeredWords(seen(4, "empty UDP datagram", both(there...)), "db"); got != "which says nothing to an empty datagram" {
		t.Error(got)
	}
}

// TestDenied: that a packet passed which ought not to is in the first line.
func TestDenied(t *testing.T) {
	x := traced{Explanation: api.Explanation{Egress: api.Decision{Allowed: true}, From: api.Peer{Name: "app"}, To: api.Peer{Name: "db"}, Ingress: api.Decision{Why: "denied"}}}
	x.Would = &api.Trace{Packet: &api.TracePacket{Answer: "open"}}
	if got := judge(x, nil); !strings.HasSuffix(got.Verdict, "denied: report this") || !strings.HasPrefix(got.Verdict, "app reaches db, where somebody listens") {
		t.Error(got.Verdict)
	}
}

// TestStuck: that a container cannot send is in the first line, before what the switch would do with what never comes.
func TestStuck(t *testing.T) {
	x := traced{Explanation: api.Explanation{From: api.Peer{Name: "app"}, To: api.Peer{Name: "db"}, Egress: api.Decision{Allowed: true}, Ingress: api.Decision{Allowed: true}}}
	x.Would = &api.Trace{Packet: &api.TracePacket{Error: "send from app: network is unreachable", Stuck: true}}
	if got := judge(x, nil); !got.Wrong || got.Verdict != "app does not reach db: it cannot send: send from app: network is unreachable" {
		t.Error(got.Verdict)
	}
}

// TestNotSent: a packet that could not be sent never ends in that nothing was found.
func TestNotSent(t *testing.T) {
	yes := api.Decision{Allowed: true}
	x := traced{Explanation: api.Explanation{From: api.Peer{Name: "app"}, To: api.Peer{Name: "db"}, Egress: yes, Ingress: yes}}
	x.Would = &api.Trace{Packet: &api.TracePacket{Error: "send a packet: operation not permitted", Failed: true, Held: true}}
	if got := judge(x, nil); !got.Wrong || got.Do == "" || !strings.HasPrefix(got.Verdict, "app does not reach db: its own firewall, a rule inside of app, does not let it send") {
		t.Error(got.Verdict)
	}
	x.Would.Packet = &api.TracePacket{Error: "4 packets are traced on its host already: try again", Failed: true}
	if got := judge(x, nil); got.Wrong || !got.Unknown || strings.Contains(got.Verdict, "Nothing was found") {
		t.Error(got.Verdict)
	}
	x.Would.Packet = &api.TracePacket{Error: "only containers are sent from"}
	if got := judge(x, nil); got.Wrong || got.Unknown || !strings.HasPrefix(got.Verdict, "Nothing was found") {
		t.Error(got.Verdict)
	}
	led := traced{Led: &api.Lead{Name: "service blue/web", Sent: &api.TracePacket{Error: "network is down", Failed: true}}}
	if got := judgeLed(led, "app"); !got.Unknown || strings.Contains(got.Verdict, "Nothing was found") {
		t.Error(got.Verdict)
	}
}

// TestAnsweredWins: nobody says that a packet which was answered does not come there; what is wrong besides is said.
func TestAnsweredWins(t *testing.T) {
	yes := api.Decision{Allowed: true}
	for want, break_ := range map[string]func(*traced, *api.Node){
		"; yet the agent of host host2 does not answer, so that the names of containers there are not found": func(_ *traced, n *api.Node) { n.Alive = false },
		"; yet host host2: it could not be asked":                                                            func(t *traced, _ *api.Node) { t.Ping.Error = "it could not be asked" },
		"; yet a packet through the tunnel did not arrive":                                                   func(t *traced, _ *api.Node) { t.Ping.Tunnel.Lost = "did not arrive" },
		"; yet it ought to, but the switch of host host1 would have the pac":                                 func(t *traced, _ *api.Node) { t.Would.There = []api.TraceHop{{Host: "host1", End: "dropped"}} },
	} {
		nodes := []api.Node{{Name: "host1", Self: true, Alive: true}, {Name: "host2", Alive: true}}
		x := traced{Ping: &api.Ping{Host: "host2"}, Would: &api.Trace{Packet: &api.TracePacket{What: "TCP SYN", Answer: "open", Milliseconds: 1}}, Explanation: api.Explanation{
			Egress: yes, Ingress: yes, From: api.Peer{Name: "app", Host: "host1"}, To: api.Peer{Name: "db", Host: "host2"}}}
		break_(&x, &nodes[1])
		if got := judge(x, nodes); !got.Wrong || !strings.HasPrefix(got.Verdict, "app reaches db, where somebody listens") || !strings.Contains(got.Verdict, want) {
			t.Errorf("want %q: %s", want, got.Verdict)
		}
		x.Would.Packet.Answer, x.Would.Packet.Points = "refused", []api.TracePoint{{Host: "host1", Container: "app", Seen: true}, {Host: "host1", Place: "eth0", Seen: true}, {Host: "host2", Container: "db", Seen: true}}
		nodes[1].Alive = false
		x.Would.There = nil
		if got := judge(x, nodes); !strings.HasPrefix(got.Verdict, "app does not reach db: its packets arrive") {
			t.Error(got.Verdict)
		}
	}
}

// TestPaused: what is paused is said so, though its kernel answers.
func TestPaused(t *testing.T) {
	yes, at := api.Decision{Allowed: true}, netip.MustParseAddr("10.1.0.2")
	web := api.Peer{Name: "web", Network: "blue", Host: "host3", Addr: at}
	list := []api.Endpoint{{Name: "web", Network: "blue", Host: "host3", Addrs: []netip.Addr{at}, Paused: true}}
	x := traced{Explanation: api.Explanation{From: api.Peer{Name: "app"}, To: web, Egress: yes, Ingress: yes}, Would: &api.Trace{Packet: &api.TracePacket{Answer: "open"}}}
	x.Paused = pausedOf(list, x.From, x.To)
	const want = "app reaches web, where somebody listens: the answer came back after 0.00 ms; yet web is paused: its kernel answers for it, and no program in it does"
	got := judge(x, nil)
	if !got.Wrong || got.Verdict != want || got.Do != "docker unpause web" {
		t.Error(got.Verdict)
	}
	if led := judgeLed(traced{Led: &api.Lead{Name: "service blue/web"}, Ways: []traced{got}}, "app"); !led.Wrong || led.Verdict != "service blue/web leads to web; "+want {
		t.Error(led.Verdict)
	}
	if got := containers(list, []api.Node{{Name: "host3", Alive: true}}); got[0].State != "paused" {
		t.Error(got[0].State)
	}
}

// TestFamilies: what is broken over IPv6 alone is in the first line, and that somebody listens by one family alone is no fault.
func TestFamilies(t *testing.T) {
	way := func(wrong bool, verdict, answer string) traced {
		return traced{Wrong: wrong, Verdict: verdict, Do: map[bool]string{true: "do it"}[wrong], Would: &api.Trace{Packet: &api.TracePacket{Answer: answer}}}
	}
	good, bad, shut := way(false, "a reaches b, it does.", "open"), way(true, "a does not reach b: lost", ""), way(true, "a does not reach b: nobody listens", "refused")
	for _, c := range []struct {
		four, six traced
		verdict   string
		wrong     bool
	}{
		{good, good, "a reaches b, it does.", false},
		{good, bad, "over IPv6 a does not reach b: lost. Over IPv4: a reaches b, it does.", true},
		{bad, good, "over IPv4 a does not reach b: lost. Over IPv6: a reaches b, it does.", true},
		{good, shut, "a reaches b, it does, over IPv4 alone: over IPv6 nobody listens.", false},
		{shut, good, "a reaches b, it does, over IPv6 alone: over IPv4 nobody listens.", false},
		{bad, bad, "a does not reach b: lost", true},
	} {
		if got := joinFamilies(c.four, c.six); got.Verdict != c.verdict || got.Wrong != c.wrong || (got.Do == "") == c.wrong || got.Over6 == nil {
			t.Errorf("%s, %v, %q, want %s", got.Verdict, got.Wrong, got.Do, c.verdict)
		}
	}
	a4, a6 := netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("fd00::2")
	list := []api.Endpoint{{Network: "red", Addrs: []netip.Addr{a4}}, {Network: "blue", Addrs: []netip.Addr{a4, a6}}}
	for want, p := range map[netip.Addr]api.Peer{a6: {Network: "blue", Addr: a4}, {}: {Network: "red", Addr: a4}} {
		if got := sixthOf(list, p); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
	p := api.TracePacket{What: "TCP SYN", NoWay: "network is unreachable", Points: []api.TracePoint{{Host: "h", Container: "a", Seen: true}, {Host: "h", Container: "b", Seen: true}, {Host: "h", Container: "b", Back: true}, {Host: "h", Container: "a", Back: true}}}
	if got, _ := lostAt(&p, "b"); got != "the packet arrives in b, which has no way back: network is unreachable" {
		t.Error(got)
	}
}

// TestLostInTunnel: by chance lost is not too large.
func TestLostInTunnel(t *testing.T) {
	lost := func(s string) (list []api.Ping) {
		for _, c := range s {
			p := api.Ping{Full: api.Echo{Bytes: 1450}}
			if c == 's' || c == 'b' {
				p.Tunnel.Lost = "did not arrive"
			}
			if c == 'l' || c == 'b' {
				p.Full.Lost = "did not arrive"
			}
			list = append(list, p)
		}
		return list
	}
	for pings, want := range map[string]string{
		".": "", "l....": "", "s....": "", "bbbbb": "a packet through the tunnel did not arrive", "lllll": "a packet of 1450 bytes through the tunnel did not arrive; small ones pass",
		"l.l..": "a part of what goes through the tunnel is lost: 0 of 5 small packets, and 2 of 5 large ones", "lsl..": "a part of what goes through the tunnel is lost: 1 of 5 small packets, and 2 of 5 large ones",
	} {
		if got := lostInTunnel(lost(pings)); got != want {
			t.Errorf("%s: %q, want %q", pings, got, want)
		}
	}
}
