package trace

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/overlay/walk"
)

const (
	hostA cluster.NodeID = "000000000000000a"
	hostB cluster.NodeID = "000000000000000b"
)

var (
	appID, dbID   = strings.Repeat("a", 64), strings.Repeat("b", 64)
	appAt, dbAt   = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	vtepA, vtepB  = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	outside       = netip.MustParseAddr("198.51.100.7")
	dropped, drop = walk.End{}, []walk.Step{{Stage: "vnid-check", Object: "drop: source and destination are on different networks", Flow: "priority 0"}}
)

// world has app on host a and db on host b, and a desk on each. answer is what their switches say.
type world struct {
	snap   *cluster.Snapshot
	answer func(on cluster.NodeID, p walk.Packet) (walk.Path, error)
	a, b   *Desk
	asked  []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	a := cluster.New(hostA)
	b := cluster.New(hostB)
	put := func(s *cluster.State, bodies ...cluster.Body) {
		for _, body := range bodies {
			if _, _, err := s.Put(body); err != nil {
				t.Fatal(err)
			}
		}
	}
	endpoint := func(id string, host cluster.NodeID, name string, at netip.Addr) cluster.Endpoint {
		return cluster.Endpoint{ID: id, Container: id, Network: "blue", Name: name, Host: host, Addrs: []netip.Addr{at}, MAC: "0a:00:00:00:00:01"}
	}
	put(a, cluster.Node{ID: hostA, Name: "host1", VTEP: vtepA}, cluster.Network{Name: "blue", VNID: 7}, endpoint(appID, hostA, "app", appAt))
	put(b, cluster.Node{ID: hostB, Name: "host2", VTEP: vtepB}, endpoint(dbID, hostB, "db", dbAt))
	var recs []cluster.Record
	for r := range b.Snapshot().Records() {
		recs = append(recs, r)
	}
	if _, err := a.Merge(recs); err != nil {
		t.Fatal(err)
	}
	w := &world{snap: a.Snapshot()}
	desk := func(self cluster.NodeID, call func(ctx context.Context, node, method string, body []byte) ([]byte, error)) *Desk {
		return New(Config{
			Self: self, Snapshot: func() *cluster.Snapshot { return w.snap }, Call: call,
			Walk: func(_ context.Context, p walk.Packet) (walk.Path, error) {
				w.asked = append(w.asked, fmt.Sprintf("%s %s>%s reply %v endpoint %.1s vtep %s vnid %d", self[15:], p.Src, p.Dst, p.Reply, p.Endpoint, p.VTEP, p.VNID))
				return w.answer(self, p)
			},
			Explain: func(_ context.Context, r api.ExplainRequest) (e api.Explanation, err error) {
				for _, end := range []struct {
					text string
					peer *api.Peer
				}{{r.From, &e.From}, {r.To, &e.To}} {
					switch end.text {
					case "app":
						*end.peer = api.Peer{Name: "app", Network: "blue", Host: "host1", Addr: appAt}
					case "db":
						*end.peer = api.Peer{Name: "db", Network: "blue", Host: "host2", Addr: dbAt}
					case "name.example":
						*end.peer = api.Peer{Name: "name.example"}
					default:
						*end.peer = api.Peer{Addr: netip.MustParseAddr(end.text)}
					}
				}
				return e, nil
			},
		})
	}
	w.b = desk(hostB, nil)
	w.a = desk(hostA, func(ctx context.Context, node, method string, body []byte) ([]byte, error) {
		if node != string(hostB) {
			return nil, errors.New("unreachable")
		}
		return w.b.Methods()[method](ctx, string(hostA), body)
	})
	return w
}

// whole is what sound switches say.
func whole(on cluster.NodeID, p walk.Packet) (path walk.Path, err error) {
	switch {
	case p.Dst == outside:
		path.End = walk.End{Gateway: true}
	case p.Dst == appAt && on == hostA:
		path.End = walk.End{Endpoint: appID}
	case p.Dst == dbAt && on == hostB:
		path.End = walk.End{Endpoint: dbID}
	case on == hostA:
		path.End = walk.End{VTEP: vtepB, VNID: 7}
	default:
		path.End = walk.End{VTEP: vtepA, VNID: 7}
	}
	path.Steps = []walk.Step{{Stage: "forwarding", Object: "endpoint " + dbID}}
	return path, nil
}

func summary(hops []api.TraceHop) string {
	var list []string
	for _, h := range hops {
		list = append(list, h.Host+": "+strings.TrimSpace(h.End+" "+h.Where+h.Error))
	}
	return strings.Join(list, "; ")
}

// TestTrace: a packet goes from host to host as each of them says, and the answer the other way.
func TestTrace(t *testing.T) {
	for _, c := range []struct {
		what, from, to, there, back string
		answer                      func(cluster.NodeID, walk.Packet) (walk.Path, error)
	}{
		{"whole", "app", "db", "host1: host host2; host2: container db", "host2: host host1; host1: container app", whole},
		{"outside", "app", "198.51.100.7", "host1: outside", "host1: container app", whole},
		{"from outside", "198.51.100.7", "db", "host2: container db", "host2: outside", whole},
		{"dropped there", "app", "db", "host1: host host2; host2: dropped", "", func(on cluster.NodeID, p walk.Packet) (walk.Path, error) {
			if on == hostB {
				return walk.Path{Steps: drop, End: dropped}, nil
			}
			return whole(on, p)
		}},
		{"no answer", "app", "db", "host1: host host2; host2: gone", "", func(on cluster.NodeID, p walk.Packet) (walk.Path, error) {
			if on == hostB {
				return walk.Path{}, &gossip.RemoteError{Node: "b", Method: methodStep, Text: "gone"}
			}
			return whole(on, p)
		}},
		{"old", "app", "db", "host1: host host2; host2: its agent is of an older version, which cannot say what its switch would do", "", func(on cluster.NodeID, p walk.Packet) (walk.Path, error) {
			if on == hostB {
				return walk.Path{}, &gossip.RemoteError{Node: "b", Method: methodStep, Text: `unknown method "trace.step": is this host's agent older?`}
			}
			return whole(on, p)
		}},
		{"round and round", "app", "db", "host1: host host2; host2: host host1; host1: host host2", "", func(on cluster.NodeID, p walk.Packet) (walk.Path, error) {
			return walk.Path{Steps: drop, End: walk.End{VTEP: map[cluster.NodeID]netip.Addr{hostA: vtepB, hostB: vtepA}[on]}}, nil
		}},
	} {
		w := newWorld(t)
		w.answer = c.answer
		got, err := w.a.Trace(t.Context(), api.TraceRequest{From: c.from, To: c.to, Port: 80, Dry: true})
		if there, back := summary(got.There), summary(got.Back); err != nil || there != c.there || back != c.back {
			t.Errorf("%s: there %q, back %q, %v\nwant  %q, %q", c.what, there, back, err, c.there, c.back)
		}
		if c.what == "whole" {
			want := []string{
				"a 10.0.0.1>10.0.0.2 reply false endpoint a vtep invalid IP vnid 0", "b 10.0.0.1>10.0.0.2 reply false endpoint  vtep 192.0.2.1 vnid 7",
				"b 10.0.0.2>10.0.0.1 reply true endpoint b vtep invalid IP vnid 0", "a 10.0.0.2>10.0.0.1 reply true endpoint  vtep 192.0.2.2 vnid 7",
			}
			if fmt.Sprint(w.asked) != fmt.Sprint(want) {
				t.Errorf("asked:\n%s", strings.Join(w.asked, "\n"))
			}
			if s := got.There[0].Steps[0]; s.Object != "container db" {
				t.Errorf("%+v", s)
			}
		}
	}
	// Inside WireGuard hosts have other VTEPs.
	s := newWorld(t)
	s.answer = func(on cluster.NodeID, p walk.Packet) (walk.Path, error) {
		path, err := whole(on, p)
		if path.End.VTEP.IsValid() {
			path.End.VTEP = cluster.SecureVTEP(map[netip.Addr]cluster.NodeID{vtepA: hostA, vtepB: hostB}[path.End.VTEP])
		}
		return path, err
	}
	got, err := s.a.Trace(t.Context(), api.TraceRequest{From: "app", To: "db", Port: 80, Dry: true})
	if there := summary(got.There); err != nil || there != "host1: host host2; host2: container db" || !strings.Contains(s.asked[1], "vtep "+cluster.SecureVTEP(hostA).String()) {
		t.Errorf("inside WireGuard: %s, %v, %q", there, err, s.asked)
	}
	w := newWorld(t)
	w.answer = whole
	for _, to := range []string{"name.example", "198.51.100.7"} {
		var refused *api.Error
		if _, err := w.a.Trace(t.Context(), api.TraceRequest{From: "203.0.113.1", To: to, Port: 80, Dry: true}); !errors.As(err, &refused) {
			t.Errorf("to %s: %v", to, err)
		}
	}
}

// TestFastPath: where it takes a packet is told apart from where the switch does.
func TestFastPath(t *testing.T) {
	w := newWorld(t)
	to, other := walk.End{VTEP: vtepB, VNID: 7}, walk.End{VTEP: netip.MustParseAddr("192.0.2.99"), VNID: 7}
	for want, path := range map[string]walk.Path{
		"off ":                       {End: to},
		"leaves ":                    {End: to, FastOn: true},
		"carries ":                   {End: to, FastOn: true, Fast: &to},
		"differs to host 192.0.2.99": {End: to, FastOn: true, Fast: &other},
	} {
		hop := describe(w.snap, api.TraceHop{}, path)
		if got := hop.FastPath + " " + hop.FastTo; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestNobodysAddress: what is no one machine's is no end of a trace.
func TestNobodysAddress(t *testing.T) {
	w := newWorld(t)
	for to, want := range map[string]string{"127.0.0.1": "each machine's own", "::1": "each machine's own", "224.0.0.1": "of many", "ff02::1": "of many", "255.255.255.255": "of many", "0.0.0.0": "of many"} {
		if _, err := w.a.Trace(t.Context(), api.TraceRequest{From: "app", To: to}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("to %s: %v, want that it is %s", to, err, want)
		}
	}
}
