package agent

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/grapevine-net/grapevine/internal/config"
	"github.com/grapevine-net/grapevine/internal/socket"
)

// sockets are those that an agent answers on: Docker's calls, and the command line.
type sockets struct{ calls, own net.Listener }

// openSockets makes both. Calls wait in them until somebody serves them. Two agents on
// one host take Docker's calls away from each other, so the second one gets an error.
func openSockets(ctx context.Context, cfg config.Config) (s sockets, err error) {
	if s.calls, err = socket.Listen(ctx, cfg.PluginSocket, 0o755); err == nil {
		if s.own, err = socket.Listen(ctx, cfg.APISocket(), 0o700); err != nil {
			_ = s.calls.Close()
		}
	}
	if errors.Is(err, socket.ErrAnswered) {
		err = fmt.Errorf("%w: stop it, or give this one its own --run, --state and --plugin-socket", err)
	}
	return s, err
}

func (s sockets) close() {
	_ = s.calls.Close()
	_ = s.own.Close()
}
