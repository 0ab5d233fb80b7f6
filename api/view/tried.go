package view

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/policy/replay"
	"github.com/grapevine-net/grapevine/policy/worlds"
)

// Tried returns those of the connections, as Logged takes them, that policies which are only tried would deny. Of those to the
// outside it leaves out what might pass by a name: for which name a container asked is noted only where a rule in force
// names it.
func Tried(s *cluster.Snapshot, self cluster.NodeID, told []policy.Answer, host func(netip.Addr) bool, seen []api.Connection) (list []api.LoggedConnection) {
	trials := worlds.Trials(s)
	if len(trials) == 0 || len(seen) == 0 {
		return nil
	}
	w := worlds.Whole(s, self)
	w.Answers = told
	after, tried := w.Tried(trials)
	at := map[netip.Addr]string{}
	for _, e := range w.Endpoints {
		for _, a := range e.Addrs {
			at[a] = e.ID
		}
	}
	for _, c := range seen {
		proto, port, asked := question(s, self, host, c)
		if !asked {
			continue
		}
		from, to := policy.Peer{Endpoint: at[c.From.Addr], Addr: c.From.Addr}, policy.Peer{Endpoint: at[c.To.Addr], Addr: c.To.Addr}
		if !w.Verdict(from, to, proto, port).Allowed {
			continue
		}
		v := after.Verdict(from, to, proto, port)
		if v.Allowed || len(replay.Names(after, from, to, proto, port)) > 0 {
			continue
		}
		one := api.LoggedConnection{Time: c.First, From: c.From, To: c.To, Proto: c.Proto, Allowed: true, Tried: true}
		one.Rules, one.Unknown = against(v, tried)
		list = append(list, one)
	}
	return list
}

// against are the rules of tried policies that deny, or all that do if none of these does by itself, and what is not known.
func against(v policy.Verdict, tried map[policy.Key]bool) (list []api.PolicyRule, unknown []string) {
	var refs []policy.Ref
	for _, d := range []policy.Decision{v.Egress, v.Ingress} {
		if !d.Allowed {
			refs, unknown = append(refs, d.Rules...), append(unknown, d.Unknown...)
		}
	}
	own := slices.DeleteFunc(slices.Clone(refs), func(r policy.Ref) bool { return !tried[r.Policy] })
	if len(own) > 0 {
		refs = own
	}
	return rules(refs), unknown
}

// tryPolicies lists the policies that are only tried.
func tryPolicies(s *cluster.Snapshot, self cluster.NodeID) (list []api.Policy) {
	trials := worlds.Trials(s)
	if len(trials) == 0 {
		return nil
	}
	w := worlds.Whole(s, self)
	for _, t := range trials {
		body, _ := t.Record.Body.(cluster.Trial)
		p := body.Policy()
		one := api.Policy{Kind: kindOf(p), Network: p.Network, Name: worlds.NameOf(p), Text: p.Text, Author: p.Author, Version: t.Record.Version.Counter, Mode: api.ModeTry}
		if t.Err != nil {
			one.Notes = append(one.Notes, "this host's agent is too old for it, and does not try it: "+t.Err.Error())
		} else {
			subject := t.Policy.Subject
			if t.Policy.Kind == policy.EgressNetworkPolicy {
				subject = policy.Set{Network: p.Network}
			}
			certain, possible := w.Selected(subject)
			one.Selects, one.MaySelect = len(certain), len(possible)
		}
		if _, there := cluster.Get[cluster.Network](s, p.Network); !there && p.Scope == cluster.ScopeNetwork {
			one.Notes = append(one.Notes, "there is no network "+p.Network+": it selects nothing")
		}
		list = append(list, one)
	}
	return list
}

// explainTried says what policies that are tried would do with a connection; nil: there are none.
func explainTried(s *cluster.Snapshot, self cluster.NodeID, told []policy.Answer, from, to policy.Peer, proto uint8, port uint16) *api.TriedVerdict {
	trials := worlds.Trials(s)
	if len(trials) == 0 {
		return nil
	}
	w := worlds.Whole(s, self)
	w.Answers = told
	after, tried := w.Tried(trials)
	v := after.Verdict(from, to, proto, port)
	out := &api.TriedVerdict{Allowed: v.Allowed}
	if !v.Allowed {
		out.Rules, out.Unknown = against(v, tried)
	}
	for _, t := range trials {
		if name := t.Policy.Key.String(); t.Err == nil {
			out.Policies = append(out.Policies, name)
		}
	}
	return out
}

// tries reports whether a policy is only tried. It reads none of them, as Logs.
func tries(s *cluster.Snapshot) bool {
	for range cluster.All[cluster.Trial](s) {
		return true
	}
	return false
}

// TriedVersions are the policies that are only tried, as commands name them, and which writing of each, as rules say it.
func TriedVersions(s *cluster.Snapshot) map[string]string {
	versions := map[string]string{}
	for t := range cluster.All[cluster.Trial](s) {
		rec, _ := s.Record(t.Key())
		versions[PolicyName(t.Policy())] = fmt.Sprint(rec.Version.Counter)
	}
	return versions
}
