package sockets

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/host/socket"
)

// Serve answers the command line: root's, and who may look.
func Serve(ctx context.Context, cfg config.Config, own net.Listener, h api.Handlers, log *slog.Logger) error {
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return api.Serve(ctx, own, h) })
	tasks.Go(func() error {
		serveReaders(ctx, cfg, h.Readers(), log)
		return nil
	})
	return tasks.Wait()
}

// readersRetry is how often it is tried to make their socket: at boot Docker's may come later.
const readersRetry = 5 * time.Second

// serveReaders answers who may look, until ctx ends. That it cannot is no reason for the agent not to run.
func serveReaders(ctx context.Context, cfg config.Config, h api.Handlers, log *slog.Logger) {
	said := ""
	for ctx.Err() == nil {
		group, err := readers(cfg)
		if err == nil && group != 0 {
			var l *socket.Socket
			if l, err = socket.ListenGroup(ctx, cfg.ReadSocket(), group); err == nil {
				err = api.Serve(ctx, l, h)
			}
		}
		if err != nil && ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			log.Warn("nobody but root can look", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(readersRetry):
		}
	}
}

// readers is the group that may look; 0: none.
func readers(cfg config.Config) (int, error) {
	if cfg.Group != "" {
		if n, err := strconv.Atoi(cfg.Group); err == nil {
			return n, nil
		}
		g, err := user.LookupGroup(cfg.Group)
		if err != nil {
			return 0, fmt.Errorf("GRAPEVINE_GROUP=%s: %w; in the plugin, say its number", cfg.Group, err)
		}
		return strconv.Atoi(g.Gid)
	}
	if cfg.Edge() {
		return 0, nil
	}
	st, err := os.Stat(strings.TrimPrefix(cfg.Docker, "unix://"))
	if err != nil {
		return 0, nil // Docker's is not there yet
	}
	const groups = 0o060
	owner, ok := st.Sys().(*syscall.Stat_t)
	if !ok || st.Mode()&groups != groups || st.Mode().Type() != fs.ModeSocket {
		return 0, nil
	}
	return int(owner.Gid), nil
}
