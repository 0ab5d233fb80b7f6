package main

import (
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
)

// TestJudge: the first thing in the way is in the verdict.
func TestJudge(t *testing.T) {
	nodes := []api.Node{{Name: "host1", Self: true, Alive: true}, {Name: "host2", Alive: true}}
	whole := func() traced {
		yes := api.Decision{Allowed: true}
		return traced{Ping: &api.Ping{Host: "host2"}, Explanation: api.Explanation{Allowed: true, Egress: yes, Ingress: yes,
			From: api.Peer{Name: "app", Network: "blue", Host: "host1"}, To: api.Peer{Name: "db", Network: "blue", Host: "host2"}}}
	}
	if got := farHost(whole().Explanation, nodes); got != "host2" {
		t.Errorf("far host %q", got)
	}
	if got := judge(whole(), nodes); got.Wrong || !strings.HasPrefix(got.Verdict, "Nothing was found in the way") || len(got.NotTried) != 2 {
		t.Errorf("%+v", got)
	}
	for want, break_ := range map[string]func(*traced){
		"the networks blue and red do not meet": func(t *traced) {
			t.To.Network, t.Notes = "red", []string{"nothing passes between the networks blue and red, whatever policies say"}
		},
		"no container has the address 10.1.2.9 of network blue": func(t *traced) {
			t.To, t.Notes = api.Peer{}, []string{"there are no policies", "no container has the address 10.1.2.9 of network blue"}
		},
		"do not let it enter db: denied; shop/db ingress[0] (Deny)": func(t *traced) {
			t.Ingress = api.Decision{Why: "denied", Rules: []api.PolicyRule{{Rule: "shop/db ingress[0]", Action: "Deny"}}}
		},
		"through the tunnel did not arrive at host2": func(t *traced) { t.Ping.Tunnel.Lost = "did not arrive at host2" },
		"of 1450 bytes through the tunnel":           func(t *traced) { t.Ping.Full = api.Echo{Bytes: 1450, Lost: "did not arrive at host2"} },
		"it ought to, but the switch of host host2 would have the packet dropped at forwarding: range 10.1.0.0/24": func(t *traced) {
			t.Would = &api.Trace{There: []api.TraceHop{{Host: "host1", End: "host", Where: "host2"}, {Host: "host2", End: "dropped", Steps: []api.TraceStep{{Stage: "forwarding", Object: "range 10.1.0.0/24"}}}}}
		},
		"the fast path of host host1 takes the answer to host 192.0.2.99, its switch to container app": func(t *traced) {
			t.Would = &api.Trace{Back: []api.TraceHop{{Host: "host2", End: "host", Where: "host1", FastPath: "carries"}, {Host: "host1", End: "container", Where: "app", FastPath: "differs", FastTo: "to host 192.0.2.99"}}}
		},
	} {
		x := whole()
		break_(&x)
		if got := judge(x, nodes); !got.Wrong || got.Do == "" || !strings.Contains(got.Verdict, want) {
			t.Errorf("want %q: %+v", want, got)
		}
	}
	nodes[1].Alive = false
	if got := judge(whole(), nodes); !strings.Contains(got.Verdict, "the agent of host host2 does not answer") {
		t.Errorf("%+v", got)
	}
}
