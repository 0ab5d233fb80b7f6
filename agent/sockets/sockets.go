// Package sockets are those that an agent answers on, whatever it has to say: Docker's calls, and the command line.
package sockets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/driver/standin"
	"github.com/grapevine-net/grapevine/host/socket"
	"github.com/grapevine-net/grapevine/membership/identity"
)

// Open are those that an agent answers on: Docker's calls, and the command line.
type Open struct {
	Calls, Own *socket.Socket // Calls is nil on a host without Docker
	Deputy     bool           // a deputy has given way to this agent
	Served     *atomic.Bool   // this agent has served
}

// Problems are for status.
func (s Open) Problems() (list []api.Problem) {
	if s.Calls == nil {
		return nil
	}
	if err := s.Calls.Trouble(); err != nil {
		list = append(list, api.Problem{
			Code: api.DockerSocket,
			What: "Docker cannot call the agent: " + err.Error(),
			Do:   "remove what is in its place: the agent then makes it anew within seconds. If its directory is gone, start the agent again (the plugin: docker plugin disable -f NAME, docker plugin enable NAME)",
		})
	}
	return list
}

// Make makes both. Calls wait in them until somebody serves them. Two agents on
// one host take Docker's calls away from each other, so the second one gets an error. A host without Docker has
// no calls.
func Make(ctx context.Context, cfg config.Config) (s Open, err error) {
	s.Deputy, s.Served = standin.Dismiss(ctx, cfg.PluginSocket), new(atomic.Bool)
	if !cfg.Edge() {
		s.Calls, err = socket.Listen(ctx, cfg.PluginSocket, 0o755)
	}
	if err == nil {
		if s.Own, err = socket.Listen(ctx, cfg.APISocket(), 0o700); err != nil {
			s.closeCalls()
		}
	}
	if errors.Is(err, socket.ErrAnswered) {
		err = fmt.Errorf("%w: stop it, or give this one its own --run, --state and --plugin-socket", err)
	}
	return s, err
}

// Succeeded reports whether a deputy is to come after this agent: it has served, or one has given way to it.
func (s Open) Succeeded() bool { return s.Deputy || s.Served.Load() }

// Sweep removes the directory of the sockets of a host that has left.
func Sweep(cfg config.Config) {
	if _, left, err := identity.LoadLeft(cfg.State); err != nil || !left {
		return
	}
	if real, err := filepath.EvalSymlinks(cfg.Run); err == nil { // in the plugin it is a link
		_ = os.Remove(real) // what is not empty is not all ours
	}
}

// Close ends both.
func (s Open) Close() {
	s.closeCalls()
	_ = s.Own.Close()
}

func (s Open) closeCalls() {
	if s.Calls != nil {
		_ = s.Calls.Close()
	}
}
