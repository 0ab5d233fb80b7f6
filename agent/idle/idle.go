// Package idle is an agent that does nothing but answer: of a host that has left, and where none can run.
package idle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/agent/sockets"
	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/driver/standin"
	"github.com/grapevine-net/grapevine/host/installed"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/membership"
	"github.com/grapevine-net/grapevine/membership/identity"
)

// A host that has left rests: its agent answers Docker, so that what is left of its networks
// goes at once, and makes nothing. So it is after a reboot, too, and when the plugin is
// disabled and enabled: until somebody says that the host is wanted, by `grapevine join`, by
// settings that name another cluster, or by installing anew.

// ErrWanted ends the rest.
var ErrWanted = errors.New("this host is wanted again")

// LeftText says that a host has left, for people.
const LeftText = "This host has left the cluster, and stays out of it, over reboots too: " + membership.BackByJoin + ".\n"

// Config is what an agent that rests goes by.
type Config struct {
	Settings  config.Config
	Version   string
	Log       *slog.Logger
	Installed *installed.Agent
	Ready     func() // lets those begin that wait for this agent
}

// IfLeft rests if this host has left, until ctx ends (nil) or the host is wanted again ([ErrWanted]).
func IfLeft(ctx context.Context, c Config, open sockets.Open) (rested bool, err error) {
	left, rest, err := membership.AtRest(c.Settings, c.Installed.ID, c.Log)
	if err != nil || !rest {
		return false, err
	}
	release, err := store.Lock(c.Settings.State, store.LockWait)
	if err != nil {
		return true, err
	}
	defer release()
	c.Installed.Offer()
	c.Log.Info("this host has left its cluster; "+membership.BackByJoin, "since", left.Since)
	c.Ready()
	open.Served.Store(true)
	return true, (&resting{c, left}).run(ctx, open)
}

// resting is the agent of a host that has left.
type resting struct {
	Config
	left identity.Left
}

// run answers until ctx ends (nil) or the host is wanted again.
func (r *resting) run(ctx context.Context, open sockets.Open) error {
	tasks, ctx := errgroup.WithContext(ctx)
	wanted := make(chan struct{}, 1)
	left := errors.New("grapevine: this host has left the cluster: " + membership.BackByJoin)
	if open.Calls != nil {
		tasks.Go(func() error {
			return standin.Farewells(left, r.Log.With("room", "plugin")).Serve(ctx, open.Calls.Lend())
		})
	}
	tasks.Go(func() error { return sockets.Serve(ctx, r.Settings, open.Own.Lend(), r.handlers(wanted), r.Log) })
	tasks.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-wanted:
			return ErrWanted
		}
	})
	return tasks.Wait()
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
			return api.Status{Version: r.Version, Name: r.Settings.Name, Problems: []api.Problem{problem}}, nil
		},
		Doctor: func(ctx context.Context) (api.Diagnosis, error) {
			return Diagnose(ctx, r.Settings, r.Version, problem.What, membership.BackByJoin), nil
		},
		Leave: func(ctx context.Context, _ api.LeaveRequest) (api.Done, error) {
			if r.left.Remains != "" {
				return api.Done{}, fmt.Errorf("%s; %s", problem.What, problem.Do)
			}
			return api.Done{Text: LeftText + r.Installed.Removal(ctx)}, nil
		},
		Join: func(context.Context) (api.Done, error) {
			if err := identity.RemoveLeft(r.Settings.State); err != nil {
				return api.Done{}, err
			}
			select {
			case wanted <- struct{}{}:
			default: // by another call
			}
			return api.Done{Text: joinText(r.Settings.Join)}, nil
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

func joinList(join []netip.AddrPort) (list []string) {
	for _, at := range join {
		list = append(list, at.String())
	}
	return list
}
