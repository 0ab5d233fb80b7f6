// Package edge is a host without Docker: its own programs find containers by their names.
package edge

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/dns"
	"github.com/grapevine-net/grapevine/host/resolved"
	"github.com/grapevine-net/grapevine/overlay/gateway"
)

// Edge is what a host without Docker has its own programs know. nil is for a host that has Docker.
type Edge struct {
	cfg   Config
	first firstServer
	split atomic.Pointer[string] // why systemd-resolved does not ask; empty: it does; nil: it is not known yet
}

// Config of an Edge.
type Config struct {
	Settings config.Config
	Snapshot func() *cluster.Snapshot
	Resolver *dns.Server
	Attached func() int // how many endpoints are attached here
}

// New makes an Edge.
func New(cfg Config) *Edge { return &Edge{cfg: cfg} }

// edgeEvery is how often systemd-resolved is told, if it does not know: it may begin anew, and gv0 may.
const edgeEvery = 3 * time.Second

// HostNames are for programs of this host, if it has no Docker.
func HostNames(cfg config.Config) *dns.Host {
	if !cfg.Edge() {
		return nil
	}
	return &dns.Host{At: dns.HostAddress, Networks: cfg.Reaches}
}

// ResolvConf has the servers that know what is not of the cluster.
func ResolvConf(cfg config.Config) string {
	if _, err := os.Stat(resolved.Servers); err == nil && cfg.Edge() {
		return resolved.Servers
	}
	return ""
}

// networks are those that this host reaches and that there are.
func (e *Edge) networks() (list []string) {
	for n := range cluster.All[cluster.Network](e.cfg.Snapshot()) {
		if !n.Provisional() && !n.Removed && e.cfg.Settings.Reaches(n.Name) {
			list = append(list, n.Name)
		}
	}
	slices.Sort(list)
	return list
}

// Fine is what doctor says where nothing is wrong.
func (e *Edge) Fine() string {
	return "this host has no Docker; it reaches the containers of " + words.Plural(len(e.networks()), "network") + ", and takes no share of any subnet"
}

// Run has systemd-resolved, where it runs, ask the agent about the networks' names.
func (e *Edge) Run(ctx context.Context) error {
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
func (e *Edge) tellResolved(ctx context.Context) *string {
	if !resolved.Runs() {
		return nil
	}
	why := ""
	if err := resolved.Set(ctx, gateway.Port, dns.HostAddress.Addr(), e.networks()); err != nil {
		why = err.Error()
	}
	return &why
}

// Tell is what status says of it.
func (e *Edge) Tell(s *api.Status) {
	if e == nil {
		return
	}
	list := e.networks()
	why := e.split.Load()
	s.Edge = &api.Edge{Networks: list, Server: dns.HostAddress.Addr(), Split: why != nil && *why == "", First: e.first.look(resolvers)}
	var missing []string
	for _, name := range e.cfg.Settings.Networks {
		if _, there := cluster.Get[cluster.Network](e.cfg.Snapshot(), name); !there && name != config.AllNetworks {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("GRAPEVINE_NETWORKS names %s, which the cluster does not have (yet): `grapevine networks` lists those it has", words.Listed(missing)))
	}
}

// Problems are for status and doctor.
func (e *Edge) Problems() (list []api.Problem) {
	if n := e.cfg.Attached(); n > 0 {
		list = append(list, api.Problem{
			Code: api.EdgeHadDocker,
			What: fmt.Sprintf("this host is one without Docker (GRAPEVINE_DOCKER=none), and %s on it from when it had Docker", words.Plural(n, "endpoint")+" "+map[bool]string{true: "is", false: "are"}[n == 1]),
			Do:   "grapevine leave --force; grapevine join: it is a new host then. Or take GRAPEVINE_DOCKER=none away",
		})
	}
	if why := e.cfg.Resolver.HostTrouble(); why != "" {
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
