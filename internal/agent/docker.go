package agent

import (
	"context"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/internal/plugin"
	"github.com/grapevine-net/grapevine/ipam"
)

func (a *Agent) openDriver() error {
	a.plugin = plugin.New(a.log.With("room", "plugin"))
	ipam.NewDriver(a.alloc).Register(a.plugin)
	return nil
}

func (a *Agent) watch(ctx context.Context) error { <-ctx.Done(); return nil }

func (a *Agent) driverProblems() []api.Problem { return nil }
