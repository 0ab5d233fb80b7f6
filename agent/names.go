package agent

import (
	"context"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/diagnose/watch"
	"github.com/grapevine-net/grapevine/dns"
	"github.com/grapevine-net/grapevine/dns/names"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/host/nat"
	"github.com/grapevine-net/grapevine/overlay/gateway"
	"github.com/grapevine-net/grapevine/policy/answers"
)

// unmetGrace is how long after the agent's start a host that gossip has not met
// yet counts as alive: the names in its snapshot are of use at once.
const unmetGrace = 15 * time.Second

// openNames makes the resolver, and returns the rules of iptables that it needs.
func (a *Agent) openNames() (rules []nat.Rule) {
	log := a.log.With("room", "dns")
	a.openServices()
	err := dns.CanRedirect()
	if err != nil {
		log.Warn("names are answered at the gateway only; while the agent does not run, containers' questions rest", "error", err)
	}
	a.names = dns.New(dns.Config{Source: a.replica, Hosts: a.standing, Device: gateway.Port, Redirect: err == nil, Gate: gate{a}, Services: a.unserved == "", Log: log})
	a.services = a.newServices(a.names)
	for _, r := range dns.Rules(gateway.Port, dns.DefaultPort, err != nil) {
		rules = append(rules, nat.Rule(r))
	}
	return rules
}

// standing is how a host stands, for the names of its containers: gone if it answered
// earlier, or, once all have had the time to, if it does not.
func (a *Agent) standing(id cluster.NodeID) names.Standing {
	if id == a.self() {
		return names.Answers
	}
	m, known := a.gossip.Member(string(id))
	return standingOf(m, known, time.Since(a.started) > unmetGrace)
}

// standingOf is the standing of a member, if it is known; late: all have had the time to answer.
func standingOf(m gossip.Member, known, late bool) names.Standing {
	switch met := known && m.Name != ""; {
	case known && m.State == gossip.Alive && m.Doubtful:
		return names.Doubtful
	case known && m.State == gossip.Alive, !met && !late:
		return names.Answers
	}
	return names.Gone
}

// resolver is what status says of the resolver.
func (a *Agent) resolver() api.Resolver {
	s := a.names.Stats()
	return api.Resolver{
		Queries: s.Queries, Answered: s.Answered, Forwarded: s.Forwarded, Failed: s.Failed, Refused: s.Refused,
		Inside: s.Inside, Outside: s.Outside,
	}
}

// watchName returns watch.ErrRenamed when this host has another name, unless a setting names it.
func (a *Agent) watchName(ctx context.Context) error {
	if a.named {
		return nil
	}
	return watch.Name(ctx, a.cfg.Name, a.log)
}

// gate opens in the switch what containers may reach by name alone.
type gate struct{ *Agent }

// Covers implements dns.Gate.
func (g gate) Covers(endpoint, name string) bool { return g.plane.Overlay().Covers(endpoint, name) }

// Open implements dns.Gate.
func (g gate) Open(ctx context.Context, endpoint, name string, list []dns.Told) error {
	told := make([]answers.Told, len(list))
	for i, t := range list {
		told[i] = answers.Told(t)
	}
	return g.plane.Overlay().Open(ctx, endpoint, name, told)
}
