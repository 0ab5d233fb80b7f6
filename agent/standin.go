package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/host/installed"
	"github.com/grapevine-net/grapevine/host/plugin"
)

// Explain stands in for an agent that cannot run, where Docker would have no word
// about why: as a managed plugin, whose end `docker plugin enable` reports as a
// missing socket. Docker's calls and the command line are answered by the cause,
// until ctx ends (nil).
func Explain(ctx context.Context, cfg config.Config, version string, cause error, log *slog.Logger) error {
	open, err := openSockets(ctx, cfg)
	if err != nil {
		return err
	}
	defer open.close()
	installed.Offer(cfg.State, log)
	tasks, ctx := errgroup.WithContext(ctx)
	if open.calls != nil {
		tasks.Go(func() error { return refusePlugin(cause, log).Serve(ctx, open.calls) })
	}
	tasks.Go(func() error { return serveOwn(ctx, cfg, open.own, refuseAPI(cfg, cause, version), log) })
	return tasks.Wait()
}

// refusePlugin answers Docker: the drivers are there, and no call works.
func refusePlugin(cause error, log *slog.Logger) *plugin.Server {
	s := plugin.New(log)
	err := fmt.Errorf("grapevine does not run on this host: %w", cause)
	describe(s)
	refuse(s, makingCalls, err)
	refuse(s, removalCalls, err)
	return s
}

// refuse answers calls with an error.
func refuse(s *plugin.Server, calls map[plugin.Driver][]string, err error) {
	for d, methods := range calls {
		for _, method := range methods {
			plugin.Handle(s, d, method, func(context.Context, *struct{}) (*struct{}, error) { return nil, err })
		}
	}
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
