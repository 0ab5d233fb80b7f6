package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/driver"
	"github.com/grapevine-net/grapevine/host/installed"
	"github.com/grapevine-net/grapevine/host/plugin"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/ipam"
	"github.com/grapevine-net/grapevine/membership"
	"github.com/grapevine-net/grapevine/membership/identity"
)

// A host that has left rests: its agent answers Docker, so that what is left of its networks
// goes at once, and makes nothing. So it is after a reboot, too, and when the plugin is
// disabled and enabled: until somebody says that the host is wanted, by `grapevine join`, by
// settings that name another cluster, or by installing anew.

// errLeft ends the agent's tasks: this host has left. errWanted ends its rest.
var (
	errLeft   = errors.New("this host has left the cluster")
	errWanted = errors.New("this host is wanted again")
)

// restIfLeft rests if this host has left. nil: it has not.
func (a *Agent) restIfLeft(ctx context.Context, open sockets) (rested bool, err error) {
	if a.installed, err = installed.Find(a.cfg, engineOf(a.cfg), a.log); err != nil {
		return false, err
	}
	left, rest, err := membership.AtRest(a.cfg, a.installed.ID, a.log)
	if err != nil || !rest {
		return false, err
	}
	release, err := store.Lock(a.cfg.State, store.LockWait)
	if err != nil {
		return true, err
	}
	defer release()
	a.installed.Offer()
	a.log.Info("this host has left its cluster; "+membership.BackByJoin, "since", left.Since)
	a.ready()
	open.served.Store(true)
	return true, (&resting{a.cfg, a.version, a.log, a.installed, left}).run(ctx, open)
}

// resting is the agent of a host that has left.
type resting struct {
	cfg       config.Config
	version   string
	log       *slog.Logger
	installed *installed.Agent
	left      identity.Left
}

// run answers until ctx ends (nil) or the host is wanted again.
func (r *resting) run(ctx context.Context, open sockets) error {
	tasks, ctx := errgroup.WithContext(ctx)
	wanted := make(chan struct{}, 1)
	if open.calls != nil {
		tasks.Go(func() error { return r.farewells().Serve(ctx, open.calls.Lend()) })
	}
	tasks.Go(func() error { return serveOwn(ctx, r.cfg, open.own.Lend(), r.handlers(wanted), r.log) })
	tasks.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-wanted:
			return errWanted
		}
	})
	return tasks.Wait()
}

// makingCalls are those by which Docker wants something made, and removalCalls those of what goes.
var (
	makingCalls = map[plugin.Driver][]string{
		plugin.Network: {"GwAllocCheck", "CreateNetwork", "CreateEndpoint", "EndpointOperInfo", "Join", "ProgramExternalConnectivity"},
		plugin.IPAM:    {"RequestPool", "RequestAddress"},
	}
	removalCalls = map[plugin.Driver][]string{
		plugin.Network: {"DeleteNetwork", "DeleteEndpoint", "Leave", "RevokeExternalConnectivity"},
		plugin.IPAM:    {"ReleasePool", "ReleaseAddress"},
	}
)

// farewells answers Docker: what it removes is gone, and nothing is made.
func (r *resting) farewells() *plugin.Server {
	s := plugin.New(r.log.With("room", "plugin"))
	err := errors.New("grapevine: this host has left the cluster: " + membership.BackByJoin)
	describe(s)
	refuse(s, makingCalls, err)
	for d, methods := range removalCalls {
		for _, method := range methods {
			// An empty body, of a retry, is as good: there is nothing to find.
			plugin.HandleNoBody(s, d, method, func(context.Context) (*driver.Empty, error) { return &driver.Empty{}, nil })
		}
	}
	return s
}

// describe answers what the drivers are.
func describe(s *plugin.Server) {
	plugin.HandleNoBody(s, plugin.Network, "GetCapabilities", driver.GetCapabilities)
	plugin.HandleNoBody(s, plugin.IPAM, "GetCapabilities", new(ipam.Driver).GetCapabilities)
	plugin.HandleNoBody(s, plugin.IPAM, "GetDefaultAddressSpaces", new(ipam.Driver).GetDefaultAddressSpaces)
}

// handlers answer the command line.
func (r *resting) handlers(wanted chan<- struct{}) api.Handlers {
	what := "this host has left the cluster"
	if !r.left.Since.IsZero() {
		what += ", " + r.left.Since.Local().Format("2006-01-02 15:04")
	}
	problem := api.Problem{Code: api.HostLeft, What: what, Do: membership.BackByJoin + "; to remove grapevine from it: `grapevine leave` says how"}
	if r.left.Remains != "" {
		problem.What += ", and not everything that grapevine made here is removed: " + r.left.Remains
		problem.Do = "stop the agent and run `grapevine cleanup`, which removes the rest; or " + membership.BackByJoin
	}
	return api.Handlers{
		Status: func(context.Context) (api.Status, error) {
			return api.Status{Version: r.version, Name: r.cfg.Name, Problems: []api.Problem{problem}}, nil
		},
		Doctor: func(ctx context.Context) (api.Diagnosis, error) {
			return Diagnose(ctx, r.cfg, r.version, problem.What, membership.BackByJoin), nil
		},
		Leave: func(ctx context.Context, _ api.LeaveRequest) (api.Done, error) {
			if r.left.Remains != "" {
				return api.Done{}, fmt.Errorf("%s; %s", problem.What, problem.Do)
			}
			return api.Done{Text: leftText + r.installed.Removal(ctx)}, nil
		},
		Join: func(context.Context) (api.Done, error) {
			if err := identity.RemoveLeft(r.cfg.State); err != nil {
				return api.Done{}, err
			}
			select {
			case wanted <- struct{}{}:
			default: // by another call
			}
			return api.Done{Text: joinText(r.cfg.Join)}, nil
		},
		Absent: &api.Error{Status: http.StatusServiceUnavailable, Message: what + ": " + membership.BackByJoin},
	}
}

func joinText(join []netip.AddrPort) string {
	if len(join) == 0 {
		return "This host begins a cluster of its own, since GRAPEVINE_JOIN names no other host: `grapevine status` says whether all is well."
	}
	return fmt.Sprintf("This host joins the cluster of %s as a new host: `grapevine status` says whether all is well.", words.Listed(joinList(join)))
}

// join answers POST /v1/join where there is nothing to do.
func (a *Agent) join(context.Context) (api.Done, error) {
	if id := a.gossip.ClusterID(); id != "" {
		return api.Done{Text: fmt.Sprintf("This host is part of cluster %s already. To move it to another one: `grapevine leave`, then start it with what `grapevine join-command` prints there.", id)}, nil
	}
	return api.Done{Text: "This host joins already: `grapevine status` says what it waits for."}, nil
}
