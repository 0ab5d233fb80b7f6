package agent

import (
	"context"
	"log/slog"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/diagnose/watch"
	"github.com/grapevine-net/grapevine/dns"
	"github.com/grapevine-net/grapevine/driver/exposed"
	"github.com/grapevine-net/grapevine/edge"
	"github.com/grapevine-net/grapevine/host/nat"
	"github.com/grapevine-net/grapevine/overlay/gateway"
	"github.com/grapevine-net/grapevine/policy/answers"
	"github.com/grapevine-net/grapevine/replica"
	"github.com/grapevine-net/grapevine/service/expose"
	"github.com/grapevine-net/grapevine/service/inside"
	"github.com/grapevine-net/grapevine/standing"
)

// naming is where containers' names lead: to the resolver's answers, and to services.
type naming struct {
	host     string // this one's name
	hosts    standing.Hosts
	replica  *replica.Replica
	haste    *standing.Haste
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
	return &naming{host: a.cfg.Name, hosts: standing.Hosts{Self: a.self(), Started: a.started, Gossip: a.gossip}, replica: a.replica, haste: &standing.Haste{Replica: a.replica, Hurry: a.gossip.Hurry}, log: a.log, own: edge.HostNames(a.cfg), conf: edge.ResolvConf(a.cfg), reserved: exposed.Reserved(a.cfg), heed: exposed.Heed(a.cfg)}
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
	n.resolver = dns.New(dns.Config{Source: n.replica, Hosts: n.hosts.Of, Device: gateway.Port, Redirect: err == nil, Gate: opens, Services: n.unserved == "", Spread: n.haste.Served, Host: n.own, ResolvConf: n.conf, Log: log})
	n.lead(n.resolver)
	for _, r := range dns.Rules(gateway.Port, dns.DefaultPort, err != nil) {
		rules = append(rules, nat.Rule(r))
	}
	return rules
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
