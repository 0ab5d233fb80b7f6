package view

import (
	"net/netip"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/policy/learn"
	"github.com/grapevine-net/grapevine/policy/replay"
	"github.com/grapevine-net/grapevine/policy/worlds"
)

// Replay says what would have become of connections that were seen, had policies been applied. host reports whether an
// address is one by which hosts speak to containers.
func Replay(s *cluster.Snapshot, self cluster.NodeID, told []policy.Answer, list []policy.Policy, seen []learn.Connection, host func(netip.Addr) bool) api.Replay {
	w := worlds.Whole(s, self)
	w.Answers = told
	var ready []policy.Policy
	for _, p := range list {
		ready = append(ready, w.Ready(p)...)
	}
	a := replay.Question{Before: w.World, After: w.With(ready...), Connections: seen, Host: host, Most: mostAsked(w.World)}.Ask()
	out := api.Replay{Judged: a.Judged, Gone: a.Gone, Left: a.Left, Changes: []api.ReplayChange{}}
	for _, p := range a.Pairs {
		one := api.ReplayChange{
			From: seenEnd(s, p.From), To: seenEnd(s, p.To), What: attempted(policy.Change{Proto: p.Proto, Port: p.Port}),
			Connections: p.Connections, Open: p.Open, Allowed: p.Allowed, Rules: rules(p.Why),
		}
		for _, d := range p.Unless {
			one.Unless = append(one.Unless, string(d))
		}
		out.Changes = append(out.Changes, one)
	}
	return out
}

// seenEnd is an end of a connection that was seen, for people.
func seenEnd(s *cluster.Snapshot, p policy.Peer) api.Peer {
	e, _ := cluster.Get[cluster.Endpoint](s, p.Endpoint)
	return place{Endpoint: e, addr: p.Addr, host: e.Host}.body(s)
}
