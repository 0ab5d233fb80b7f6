package idle

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/agent/sockets"
	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/diagnose/doctor"
	"github.com/grapevine-net/grapevine/driver/standin"
	"github.com/grapevine-net/grapevine/host/installed"
	"github.com/grapevine-net/grapevine/overlay/gateway"
)

// Explain stands in for an agent that cannot run, where Docker would have no word
// about why: as a managed plugin, whose end `docker plugin enable` reports as a
// missing socket. Docker's calls and the command line are answered by the cause,
// until ctx ends (nil).
func Explain(ctx context.Context, cfg config.Config, version string, cause error, log *slog.Logger) error {
	open, err := sockets.Make(ctx, cfg)
	if err != nil {
		return err
	}
	defer open.Close()
	installed.Offer(cfg.State, log)
	tasks, ctx := errgroup.WithContext(ctx)
	if open.Calls != nil {
		tasks.Go(func() error {
			return standin.Refusals(fmt.Errorf("grapevine does not run on this host: %w", cause), log).Serve(ctx, open.Calls)
		})
	}
	tasks.Go(func() error { return sockets.Serve(ctx, cfg, open.Own, refuseAPI(cfg, cause, version), log) })
	return tasks.Wait()
}

// mend is what to do about a wrong setting.
const mend = "as a plugin: docker plugin disable -f NAME, docker plugin set NAME GRAPEVINE_...=..., docker plugin enable NAME"

// refuseAPI answers the command line.
func refuseAPI(cfg config.Config, cause error, version string) api.Handlers {
	return api.Handlers{
		Status: func(context.Context) (api.Status, error) {
			return api.Status{Version: version, Problems: []api.Problem{{
				Code: api.AgentDown,
				What: "the agent does not run: " + cause.Error(),
				Do:   mend,
			}}}, nil
		},
		Doctor: func(ctx context.Context) (api.Diagnosis, error) {
			return Diagnose(ctx, cfg, version, "the agent does not run: "+cause.Error(), mend), nil
		},
		Absent: &api.Error{Status: http.StatusServiceUnavailable, Message: "the agent does not run: " + cause.Error()},
	}
}

// Diagnose checks a host whose agent does not run, for the reason given: what can be
// checked without one.
func Diagnose(ctx context.Context, cfg config.Config, version, why, do string) api.Diagnosis {
	checks := doctor.Look(ctx, cfg, nil, gateway.Port, gateway.Tables()).Judge()
	doctor.Sort(checks)
	first := api.Check{Subject: "agent", Verdict: api.Wrong, What: why, Do: do}
	return api.Diagnosis{Version: version, Name: cfg.Name, Checks: append([]api.Check{first}, checks...)}
}
