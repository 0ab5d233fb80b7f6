package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
)

// engineWatch knows whether Docker answers on its API.
type engineWatch struct {
	mu    sync.Mutex
	since time.Time // when the first question was asked that it has not answered; zero: it has answered all
	why   string
}

const (
	// lookAtDocker is how often Docker is asked for a sign of life: it hangs without a word.
	lookAtDocker = 2 * time.Second
	// dockerSilence is how long it may be silent, as while it is started anew.
	dockerSilence = 5 * time.Second
)

// watchDocker asks Docker for a sign of life until ctx ends.
func (a *Agent) watchDocker(ctx context.Context) error {
	return every(ctx, lookAtDocker, func() error {
		a.engine.asks(time.Now())
		err := a.docker.Ping(ctx)
		if ctx.Err() == nil {
			a.engine.answered(err)
		}
		return nil
	})
}

func (w *engineWatch) asks(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.IsZero() {
		w.since, w.why = now, "no answer to a question"
	}
}

func (w *engineWatch) answered(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.since = time.Time{}
		return
	}
	w.why = err.Error()
}

// problems are for status.
func (w *engineWatch) problems(now time.Time) []api.Problem {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.IsZero() || now.Sub(w.since) < dockerSilence {
		return nil
	}
	return []api.Problem{{
		What: fmt.Sprintf("Docker does not answer%s (%s): what runs goes on, but no container or network begins, and networks and names of this host may be out of date", words.Since(w.since, now), w.why),
		Do:   "start it (systemctl start docker); if it runs, it hangs: its log says more (journalctl -u docker). Where its API is elsewhere, set GRAPEVINE_DOCKER",
	}}
}
