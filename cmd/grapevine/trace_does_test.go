package main

import (
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
	if got := judge(x, nil); !strings.HasSuffix(got.Verdict, "denied; yet a real packet was answered: report this") {
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
