package agent

import (
	"context"
	"errors"
	"os"
	"time"
)

// errRenamed ends the agent's tasks: this host has another name than when they began.
var errRenamed = errors.New("this host has another name now")

// lookAtName is how often the host's name is looked at: one system call.
const lookAtName = 2 * time.Second

// watchName returns errRenamed when this host's name has changed, unless a setting names it. A
// managed plugin has the name that the host had when Docker started it, and sees no other.
func (a *Agent) watchName(ctx context.Context) error {
	if a.named {
		return nil
	}
	return every(ctx, lookAtName, func() error {
		if now, err := os.Hostname(); err == nil && now != a.cfg.Name {
			a.log.Info("this host has another name: beginning anew with it", "was", a.cfg.Name, "is", now)
			return errRenamed
		}
		return nil
	})
}

// every calls look again and again, until ctx ends (nil) or it returns an error.
func every(ctx context.Context, pause time.Duration, look func() error) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := look(); err != nil {
			return err
		}
	}
}
