package view

import (
	"fmt"
	"slices"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/policy/worlds"
)

// mostAsked is for how many connections a trial asks: a verdict takes as long as there are endpoints and policies.
func mostAsked(w policy.World) int {
	return 100_000_000 / (1000 + len(w.Endpoints) + 10*len(w.Policies))
}

// Try says what would change if policies were applied, between containers of one network and to and from the outside.
// told is what this host's containers were told by name.
func Try(s *cluster.Snapshot, self cluster.NodeID, told []policy.Answer, list []policy.Policy) api.Trial {
	w := worlds.Whole(s, self)
	w.Answers = told
	var keys []policy.Key
	var ready []policy.Policy
	for _, p := range list {
		for _, r := range w.Ready(p) {
			keys, ready = append(keys, r.Key), append(ready, r)
		}
	}
	t := policy.Trial{Before: w.World, After: w.With(ready...), Most: mostAsked(w.World)}
	t.Run(keys...)
	out := api.Trial{Changes: []api.TrialChange{}, Asked: t.Asked}
	for _, c := range t.Changes {
		one := api.TrialChange{From: endOf(s, c.From, c.To), To: endOf(s, c.To, c.From), What: []string{attempted(c)}, Allowed: c.Allowed, Rules: rules(c.Why)}
		if i := len(out.Changes) - 1; i >= 0 && same(out.Changes[i], one) {
			out.Changes[i].What = append(out.Changes[i].What, one.What...)
		} else {
			out.Changes = append(out.Changes, one)
		}
	}
	if t.Partly {
		out.Notes = append(out.Notes, fmt.Sprintf("there are more connections than the %d that were asked for: more may change", t.Asked))
	}
	for _, p := range list {
		certain, possible := t.After.Selected(p.Subject)
		switch {
		case len(certain)+len(possible) == 0:
			out.Notes = append(out.Notes, fmt.Sprintf("%s %s selects no container: nothing changes by it", p.Kind, p.Key))
		case len(possible) > 0:
			out.Notes = append(out.Notes, fmt.Sprintf("%s %s may select %d more, whose labels are not known yet", p.Kind, p.Key, len(possible)))
		}
	}
	return out
}

// endOf is an end of a connection, for people.
func endOf(s *cluster.Snapshot, p, other policy.Peer) api.Peer {
	e, known := cluster.Get[cluster.Endpoint](s, p.Endpoint)
	if !known {
		return place{addr: p.Addr, domain: policy.Domain(p.Name)}.body(s)
	}
	at := place{Endpoint: e, host: e.Host}
	o, _ := cluster.Get[cluster.Endpoint](s, other.Endpoint)
	if at.addr, _ = sameFamily(at, place{Endpoint: o, addr: other.Addr}); !at.addr.IsValid() && len(e.Addrs) > 0 {
		at.addr = e.Addrs[0]
	}
	return at.body(s)
}

// same says whether two changes are of the same ends for the same reason.
func same(a, b api.TrialChange) bool {
	return a.From == b.From && a.To == b.To && a.Allowed == b.Allowed && slices.Equal(a.Rules, b.Rules)
}

func attempted(c policy.Change) string {
	if c.Proto == policy.ICMP || c.Proto == policy.ICMPv6 {
		return "ping"
	}
	if c.Other {
		return "other ports"
	}
	for name, proto := range protocols {
		if proto == c.Proto {
			return fmt.Sprintf("port %d/%s", c.Port, name)
		}
	}
	return fmt.Sprintf("port %d of protocol %d", c.Port, c.Proto)
}
