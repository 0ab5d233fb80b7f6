package agent

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/dns"
	"github.com/grapevine-net/grapevine/driver"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/host/resolved"
	"github.com/grapevine-net/grapevine/overlay/gateway"
	"github.com/grapevine-net/grapevine/replica"
)

// engineOf is this host's Docker; nil: it has none.
func engineOf(cfg config.Config) *docker.Client {
	if cfg.Edge() {
		return nil
	}
	return docker.New(cfg.Docker)
}

// openEdge is in the place of Agent.openDriver on a host without Docker: what would wait for Docker's word has it.
func openEdge(a *Agent) error {
	a.reached.SetNetworks(nil, nil)
	a.plane.Guard().Listed(nil)
	a.edge = &edge{cfg: a.cfg, replica: a.replica, resolver: a.naming.resolver, attached: a.member.Attached}
	return nil
}

// dockers are tasks that are for Docker, or for containers that run here.
var dockers = []string{"plugin", "engine", "docker", "forwarding"}

// tasks are those of all that a host without Docker has.
func (e *edge) tasks(all []Task) []Task {
	if e == nil {
		return all
	}
	all = slices.DeleteFunc(all, func(t Task) bool { return slices.Contains(dockers, t.Name) })
	return append(all, Task{
		Name: "edge", Run: e.run, Doctor: "edge", Problems: func(context.Context, look) []api.Problem { return e.problems() },
		Fine: "this host has no Docker; it reaches the containers of " + words.Plural(len(e.networks()), "network") + ", and takes no share of any subnet",
	})
}

// poolsOf are where Docker was told to take the subnets of its own networks from.
func poolsOf(d *docker.Client) func(context.Context) ([]netip.Prefix, error) {
	if d == nil {
		return func(context.Context) ([]netip.Prefix, error) { return nil, nil }
	}
	return d.Pools
}

// sandboxOf is the network namespace of a container of this host, "" if it does not run.
func sandboxOf(d *driver.Driver, endpoint string) string {
	if d == nil {
		return ""
	}
	return d.Sandbox(endpoint)
}

// edge is what a host without Docker has its own programs know. nil is for a host that has Docker.
type edge struct {
	cfg      config.Config
	replica  *replica.Replica
	resolver *dns.Server
	attached func() int
	first    firstServer
	split    atomic.Pointer[string] // why systemd-resolved does not ask; empty: it does; nil: it is not known yet
}

// edgeEvery is how often systemd-resolved is told, if it does not know: it may begin anew, and gv0 may.
const edgeEvery = 3 * time.Second

// hostNames are for programs of this host, if it has no Docker.
func hostNames(cfg config.Config) *dns.Host {
	if !cfg.Edge() {
		return nil
	}
	return &dns.Host{At: dns.HostAddress, Networks: cfg.Reaches}
}

// resolvConf has the servers that know what is not of the cluster.
func resolvConf(cfg config.Config) string {
	if _, err := os.Stat(resolved.Servers); err == nil && cfg.Edge() {
		return resolved.Servers
	}
	return ""
}

// networks are those that this host reaches and that there are.
func (e *edge) networks() (list []string) {
	for n := range cluster.All[cluster.Network](e.replica.Snapshot()) {
		if !n.Provisional() && !n.Removed && e.cfg.Reaches(n.Name) {
			list = append(list, n.Name)
		}
	}
	slices.Sort(list)
	return list
}

// run has systemd-resolved, where it runs, ask the agent about the networks' names.
func (e *edge) run(ctx context.Context) error {
	for {
		e.split.Store(e.tellResolved(ctx))
		e.first.look(resolvers)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(edgeEvery):
		}
	}
}

// tellResolved returns why it could not; nil: systemd-resolved does not run here.
func (e *edge) tellResolved(ctx context.Context) *string {
	if !resolved.Runs() {
		return nil
	}
	why := ""
	if err := resolved.Set(ctx, gateway.Port, dns.HostAddress.Addr(), e.networks()); err != nil {
		why = err.Error()
	}
	return &why
}

// tell is what status says of it.
func (e *edge) tell(s *api.Status) {
	if e == nil {
		return
	}
	list := e.networks()
	why := e.split.Load()
	s.Edge = &api.Edge{Networks: list, Server: dns.HostAddress.Addr(), Split: why != nil && *why == "", First: e.first.look(resolvers)}
	var missing []string
	for _, name := range e.cfg.Networks {
		if _, there := cluster.Get[cluster.Network](e.replica.Snapshot(), name); !there && name != config.AllNetworks {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("GRAPEVINE_NETWORKS names %s, which the cluster does not have (yet): `grapevine networks` lists those it has", words.Listed(missing)))
	}
}

// problems are for status and doctor.
func (e *edge) problems() (list []api.Problem) {
	if n := e.attached(); n > 0 {
		list = append(list, api.Problem{
			Code: api.EdgeHadDocker,
			What: fmt.Sprintf("this host is one without Docker (GRAPEVINE_DOCKER=none), and %s on it from when it had Docker", words.Plural(n, "endpoint")+" "+map[bool]string{true: "is", false: "are"}[n == 1]),
			Do:   "grapevine leave --force; grapevine join: it is a new host then. Or take GRAPEVINE_DOCKER=none away",
		})
	}
	if why := e.resolver.HostTrouble(); why != "" {
		list = append(list, api.Problem{
			Code: api.EdgeNames,
			What: "programs of this host cannot ask for containers by name: " + why,
			Do:   fmt.Sprintf("if another resolver listens on all addresses, let it listen on its own (dnsmasq: bind-interfaces): the agent wants %v", dns.HostAddress),
		})
	}
	if first := e.first.look(resolvers); e.split.Load() == nil && e.first.lost(first) {
		list = append(list, api.Problem{
			Code: api.EdgeNames,
			What: fmt.Sprintf("programs of this host do not find containers by name any more: nameserver %v was the first in %s, and %s is now", dns.HostAddress.Addr(), resolvers, cmp.Or(first, "none")),
			Do:   fmt.Sprintf("put `nameserver %v` before all others there, and have what writes that file (a DHCP client, NetworkManager) do so", dns.HostAddress.Addr()),
		})
	}
	if why := e.split.Load(); why != nil && *why != "" {
		list = append(list, api.Problem{
			Code: api.EdgeNames,
			What: "systemd-resolved is not told of containers' names: " + *why,
			Do:   fmt.Sprintf("systemctl status systemd-resolved; until then nameserver %v has the names", dns.HostAddress.Addr()),
		})
	}
	return list
}
