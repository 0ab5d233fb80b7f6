package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
)

// TestJudgeLed: the verdict on a service is of all ways to which it leads, and of where the container's own rules lead.
func TestJudgeLed(t *testing.T) {
	web1, web2 := netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("10.1.1.1")
	way := func(name string, wrong bool) traced {
		verdict := "app reaches " + name + "."
		if wrong {
			verdict = "app does not reach " + name + ": a firewall"
		}
		return traced{Explanation: api.Explanation{From: api.Peer{Name: "app"}, To: api.Peer{Name: name}}, Verdict: verdict, Wrong: wrong, Do: "mend it"}
	}
	whole := func() traced {
		return traced{Ways: []traced{way("web1", false), way("web2", false)}, Led: &api.Lead{
			Kind: api.LeadService, Name: "service blue/web", From: "app", Addr: netip.MustParseAddr("10.1.0.99"), Port: 80,
			Backs: []api.LeadBack{{Name: "web1", Addr: web1, Port: 8080, Host: "host1", In: true}, {Name: "web2", Addr: web2, Port: 8080, Host: "host2", In: true}, {Name: "web3", Addr: netip.MustParseAddr("10.1.1.3"), Host: "host2", Why: "it is paused"}},
			Sent:  &api.TracePacket{What: "TCP SYN", Answer: "open", To: netip.AddrPortFrom(web2, 8080), Points: []api.TracePoint{{Seen: true}}},
		}}
	}
	for _, c := range []struct {
		change func(*traced)
		want   string
		wrong  bool
	}{
		{func(*traced) {}, "app reaches service blue/web: a connection went to web2 on host host2, and the answer came back", false},
		{func(t *traced) { t.Led.Sent = nil }, "Nothing was found in the way from app to service blue/web, which leads to web1 on host host1, web2 on host host2.", false},
		{func(t *traced) { t.Ways[1] = way("web2", true) }, "app does not reach 1 of 2 containers behind service blue/web: app does not reach web2: a firewall", true},
		{func(t *traced) { t.Ways = []traced{way("web1", true)} }, "app does not reach service blue/web: it leads to web1; app does not reach web1: a firewall", true},
		{func(t *traced) { t.Led.Wrong, t.Led.Do, t.Ways = "no container is behind it", "look", nil }, "app does not reach service blue/web: no container is behind it", true},
		{func(t *traced) { t.Led.Sent.To = netip.AddrPort{} }, "app does not reach service blue/web: it is not led: the packet leaves app for the service's own address", true},
		{func(t *traced) { t.Led.Sent.To = netip.MustParseAddrPort("10.1.1.3:8080") }, "the rules inside app lead it to web3 on host host2, and not to one of web1 on host host1, web2 on host host2", true},
		{func(t *traced) { t.Led.Sent.Points[0].Seen = false }, "its packet does not leave it", true},
		{func(t *traced) { t.Led.Sent = &api.TracePacket{Error: "send a packet: operation not permitted"} }, "the rules inside app refuse it", true},
		{func(t *traced) { t.Led.Sent = &api.TracePacket{Error: "its agent is of an older version"} }, "Nothing was found in the way", false},
	} {
		x := whole()
		c.change(&x)
		if got := judgeLed(x, "app"); got.Wrong != c.wrong || !strings.Contains(got.Verdict, c.want) || c.wrong && got.Do == "" {
			t.Errorf("%q, to do %q; want %q", got.Verdict, got.Do, c.want)
		}
	}
}

// TestLeaves: what leaves by an egress that nobody holds does not, whatever else is seen of it.
func TestLeaves(t *testing.T) {
	x := traced{Explanation: api.Explanation{Allowed: true, From: api.Peer{Name: "db"}, To: api.Peer{Addr: netip.MustParseAddr("198.51.100.7")}}, Verdict: "Nothing was found"}
	held := api.Lead{Egress: &api.LeadEgress{Name: "mail", Network: "red", Addr: netip.MustParseAddr("192.0.2.25"), Holder: "host2"}}
	var b strings.Builder
	showLed(&b, held)
	if got := leaves(x, held); got.Wrong || b.String() != "egress mail of network red: with 192.0.2.25, which host host2 holds\n" {
		t.Errorf("%+v, %q", got, b.String())
	}
	held.Egress.Wrong, held.Egress.Do = "no gateway holds its address", "look"
	if got := leaves(x, held); !got.Wrong || got.Do != "look" || got.Verdict != "db does not reach 198.51.100.7: what containers of red send to the outside leaves by egress mail: no gateway holds its address" {
		t.Errorf("%+v", got)
	}
}
