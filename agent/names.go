package agent

import (
	"context"
	"log/slog"
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
	"github.com/grapevine-net/grapevine/replica"
	"github.com/grapevine-net/grapevine/service/expose"
	"github.com/grapevine-net/grapevine/service/inside"
)

// unmetGrace is how long after the agent's start a host that gossip has not met
// yet counts as alive: the names in its snapshot are of use at once.
const unmetGrace = 15 * time.Second

// naming is where containers' names lead: to the resolver's answers, and to services.
type naming struct {
	host     string // this one's name
	self     cluster.NodeID
	started  time.Time
	gossip   *gossip.Gossip
	replica  *replica.Replica
	haste    *haste
	log      *slog.Logger
	own      *dns.Host // for the host's own programs; nil: they do not ask
	conf     string    // where the servers are that they ask else, "": as ever
	resolver *dns.Server
	services *inside.Room
	reserved map[string]string // ports that no service has of all hosts
	heed     expose.Heed       // which ports of all hosts this one answers
	unserved string            // why this kernel cannot lead connections to services; "": it can
}

func newNaming(a *Agent) *naming {
	return &naming{host: a.cfg.Name, self: a.self(), started: a.started, gossip: a.gossip, replica: a.replica, haste: &haste{replica: a.replica, hurry: a.gossip.Hurry}, log: a.log, own: hostNames(a.cfg), conf: resolvConf(a.cfg), reserved: reserved(a.cfg), heed: exposing{a}.heed()}
}

// open makes the resolver, and returns the rules of iptables that it needs.
func (n *naming) open(opens dns.Gate) (rules []nat.Rule) {
	log := n.log.With("room", "dns")
	if err := inside.Can(); err != nil {
		n.unserved = err.Error()
		n.log.Warn("names of services have their replicas' own addresses here", "error", err)
	}
	err := dns.CanRedirect()
	if err != nil {
		log.Warn("names are answered at the gateway only; while the agent does not run, containers' questions rest", "error", err)
	}
	n.resolver = dns.New(dns.Config{Source: n.replica, Hosts: n.standing, Device: gateway.Port, Redirect: err == nil, Gate: opens, Services: n.unserved == "", Spread: n.haste.served, Host: n.own, ResolvConf: n.conf, Log: log})
	n.lead(n.resolver)
	for _, r := range dns.Rules(gateway.Port, dns.DefaultPort, err != nil) {
		rules = append(rules, nat.Rule(r))
	}
	return rules
}

// standing is how a host stands, for the names of its containers: gone if it answered
// earlier, or, once all have had the time to, if it does not.
func (n *naming) standing(id cluster.NodeID) names.Standing {
	if id == n.self {
		return names.Answers
	}
	m, known := n.gossip.Member(string(id))
	return standingOf(m, known, time.Since(n.started) > unmetGrace)
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

// stats is what status says of the resolver.
func (n *naming) stats() api.Resolver {
	s := n.resolver.Stats()
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
type gate struct{ agent *Agent }

// Covers implements dns.Gate.
func (g gate) Covers(endpoint, name string) bool {
	return g.agent.plane.Overlay().Covers(endpoint, name)
}

// Open implements dns.Gate.
func (g gate) Open(ctx context.Context, endpoint, name string, list []dns.Told) error {
	told := make([]answers.Told, len(list))
	for i, t := range list {
		told[i] = answers.Told(t)
	}
	return g.agent.plane.Overlay().Open(ctx, endpoint, name, told)
}
