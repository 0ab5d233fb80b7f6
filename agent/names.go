package agent

import (
	"context"
	"log/slog"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/diagnose/watch"
	"github.com/grapevine-net/grapevine/dns"
	"github.com/grapevine-net/grapevine/driver"
	"github.com/grapevine-net/grapevine/driver/exposed"
	"github.com/grapevine-net/grapevine/edge"
	"github.com/grapevine-net/grapevine/egress/hold"
	"github.com/grapevine-net/grapevine/host/nat"
	"github.com/grapevine-net/grapevine/ipam"
	"github.com/grapevine-net/grapevine/multicast"
	"github.com/grapevine-net/grapevine/overlay/gateway"
	"github.com/grapevine-net/grapevine/policy/answers"
	"github.com/grapevine-net/grapevine/replica"
	"github.com/grapevine-net/grapevine/service/edit"
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

func newNaming(p *place) *naming {
	return &naming{
		host: p.cfg.Name, hosts: standing.Hosts{Self: p.self(), Started: p.started, Gossip: p.gossip}, replica: p.replica, haste: &standing.Haste{Replica: p.replica, Hurry: p.gossip.Hurry},
		log: p.log, own: edge.HostNames(p.cfg), conf: edge.ResolvConf(p.cfg), reserved: exposed.Reserved(p.cfg), heed: exposed.Heed(p.cfg),
	}
}

// lead makes what leads containers' connections to services, before the resolver tells anybody of these.
func (n *naming) lead(next *dns.Server) {
	n.services = inside.New(inside.Config{Source: n.replica, Hosts: n.hosts.Of, Next: next, Off: n.unserved != "", Log: n.log.With("room", "services")})
}

// desk is what people do with services here.
func (n *naming) desk(alloc *ipam.Allocator) edit.Desk {
	return edit.Desk{Name: n.host, Replica: n.replica, Addresses: alloc.ServiceAddresses, Published: driver.Published, Hosts: n.hosts.Of, Lacks: n.unserved, Reserved: n.reserved, Self: n.hosts.Self, Heeds: n.heed.Heeds}
}

// newGroups makes what tells the others which multicast groups this host's containers are members of. It hears of containers first, and
// naming after it.
func (a *Agent) newGroups() *multicast.Room {
	return multicast.New(multicast.Config{Self: a.self(), Replica: a.replica, Next: a.naming.services, Log: a.log.With("room", "multicast")})
}

// newEgress makes what holds addresses here by which networks reach the outside.
func (a *Agent) newEgress() *hold.Keeper {
	return hold.New(hold.Config{Self: a.self(), Replica: a.replica, Alive: a.naming.hosts.Alive, Hear: a.naming.hosts.Heard, Routed: a.announcer.Routed, Log: a.log.With("room", "egress")})
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
type gate struct{ of *rooms }

// Covers implements dns.Gate.
func (g gate) Covers(endpoint, name string) bool {
	return g.of.plane.Overlay().Covers(endpoint, name)
}

// Open implements dns.Gate.
func (g gate) Open(ctx context.Context, endpoint, name string, list []dns.Told) error {
	told := make([]answers.Told, len(list))
	for i, t := range list {
		told[i] = answers.Told(t)
	}
	return g.of.plane.Overlay().Open(ctx, endpoint, name, told)
}
