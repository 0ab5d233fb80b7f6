package agent

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/host/socket"
)

// sockets are those that an agent answers on: Docker's calls, and the command line.
type sockets struct {
	calls, own *socket.Socket
	deputy     bool         // a deputy has given way to this agent
	served     *atomic.Bool // this agent has served
}

// problems are for status.
func (s sockets) problems() (list []api.Problem) {
	if s.calls == nil {
		return nil
	}
	if err := s.calls.Trouble(); err != nil {
		list = append(list, api.Problem{
			Code: api.DockerSocket,
			What: "Docker cannot call the agent: " + err.Error(),
			Do:   "remove what is in its place: the agent then makes it anew within seconds. If its directory is gone, start the agent again (the plugin: docker plugin disable -f NAME, docker plugin enable NAME)",
		})
	}
	return list
}

// openSockets makes both. Calls wait in them until somebody serves them. Two agents on
// one host take Docker's calls away from each other, so the second one gets an error. A host without Docker has
// no calls.
func openSockets(ctx context.Context, cfg config.Config) (s sockets, err error) {
	s.deputy, s.served = dismissDeputy(ctx, cfg.PluginSocket), new(atomic.Bool)
	if !cfg.Edge() {
		s.calls, err = socket.Listen(ctx, cfg.PluginSocket, 0o755)
	}
	if err == nil {
		if s.own, err = socket.Listen(ctx, cfg.APISocket(), 0o700); err != nil {
			s.closeCalls()
		}
	}
	if errors.Is(err, socket.ErrAnswered) {
		err = fmt.Errorf("%w: stop it, or give this one its own --run, --state and --plugin-socket", err)
	}
	return s, err
}

func (s sockets) close() {
	s.closeCalls()
	_ = s.own.Close()
}

func (s sockets) closeCalls() {
	if s.calls != nil {
		_ = s.calls.Close()
	}
}
