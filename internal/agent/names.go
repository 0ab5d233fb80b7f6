package agent

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/dns"
	"github.com/grapevine-net/grapevine/internal/nat"
	"github.com/grapevine-net/grapevine/overlay/gateway"
)

const (
	// lookForHosts is how often the resolver is told which hosts answer.
	lookForHosts = time.Second
	// unmetGrace is how long after the agent's start a host that gossip has not met
	// yet counts as alive: the names in its snapshot are of use at once.
	unmetGrace = 15 * time.Second
)

// openNames makes the resolver, and returns the rules of iptables that it needs.
func (a *Agent) openNames() (rules []nat.Rule) {
	log := a.log.With("room", "dns")
	err := dns.CanRedirect()
	if err != nil {
		log.Warn("names are answered at the gateway only; while the agent does not run, containers' questions rest", "error", err)
	}
	a.names = dns.New(dns.Config{Source: a.replica, Dead: a.hosts.gone, Device: gateway.Port, Redirect: err == nil, Log: log})
	for _, r := range dns.Rules(gateway.Port, dns.DefaultPort, err != nil) {
		rules = append(rules, nat.Rule(r))
	}
	return rules
}

// watchHosts keeps up to date which hosts are gone, until ctx ends.
func (a *Agent) watchHosts(ctx context.Context) error {
	tick := time.NewTicker(lookForHosts)
	defer tick.Stop()
	for {
		a.hosts.see(a.self(), a.gossip.Alive(), time.Since(a.started) > unmetGrace)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// roll is which hosts of the cluster are gone, for those who ask often. The zero
// value has none.
type roll struct{ last atomic.Pointer[seen] }

// seen is a roll of one moment; it does not change.
type seen struct {
	alive, met map[cluster.NodeID]bool // met: alive now or earlier in this run
	all        bool                    // who is to be met has been
}

// gone reports whether a host is known not to be there: one that answered earlier,
// or, once all have had the time to, any that does not.
func (r *roll) gone(id cluster.NodeID) bool {
	s := r.last.Load()
	return s != nil && !s.alive[id] && (s.all || s.met[id])
}

// see notes which hosts answer. Only one goroutine may call it.
func (r *roll) see(self cluster.NodeID, others []string, all bool) {
	now := &seen{alive: map[cluster.NodeID]bool{self: true}, met: map[cluster.NodeID]bool{}, all: all}
	for _, id := range others {
		now.alive[cluster.NodeID(id)] = true
	}
	for id := range now.alive {
		now.met[id] = true
	}
	if last := r.last.Load(); last != nil && !all {
		for id := range last.met {
			now.met[id] = true
		}
	}
	r.last.Store(now)
}

// resolver is what status says of the resolver.
func (a *Agent) resolver() api.Resolver {
	s := a.names.Stats()
	return api.Resolver{
		Queries: s.Queries, Answered: s.Answered, Forwarded: s.Forwarded, Failed: s.Failed, Refused: s.Refused,
		Inside: s.Inside, Outside: s.Outside,
	}
}
