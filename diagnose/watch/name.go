package watch

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"
)

// ErrRenamed ends the agent's tasks: this host has another name than when they began.
var ErrRenamed = errors.New("this host has another name now")

// lookAtName is how often the host's name is looked at: one system call.
const lookAtName = 2 * time.Second

// Name returns ErrRenamed when this host's name is not the one given any more. A managed plugin has
// the name that the host had when Docker started it, and sees no other.
func Name(ctx context.Context, name string, log *slog.Logger) error {
	return every(ctx, lookAtName, func() error {
		if now, err := os.Hostname(); err == nil && now != name {
			log.Info("this host has another name: beginning anew with it", "was", name, "is", now)
			return ErrRenamed
		}
		return nil
	})
}
