package watch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
)

// Engine knows whether Docker answers on its API.
type Engine struct {
	Ping func(context.Context) error

	mu    sync.Mutex
	since time.Time // when the first question was asked that it has not answered; zero: it has answered all
	why   string
}

const (
	// lookAtDocker is how often Docker is asked for a sign of life: it hangs without a word.
	lookAtDocker = 3 * time.Second
	// dockerSilence is how long it may be silent, as while it is started anew.
	dockerSilence = 5 * time.Second
)

// Run asks Docker for a sign of life until ctx ends.
func (w *Engine) Run(ctx context.Context) error {
	return every(ctx, lookAtDocker, func() error {
		w.asks(time.Now())
		err := w.Ping(ctx)
		if ctx.Err() == nil {
			w.answered(err)
		}
		return nil
	})
}

func (w *Engine) asks(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.IsZero() {
		w.since, w.why = now, "no answer to a question"
	}
}

func (w *Engine) answered(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.since = time.Time{}
		return
	}
	w.why = err.Error()
}

// Problems are for status.
func (w *Engine) Problems() []api.Problem { return w.problems(time.Now()) }

func (w *Engine) problems(now time.Time) []api.Problem {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.IsZero() || now.Sub(w.since) < dockerSilence {
		return nil
	}
	return []api.Problem{{
		Code: api.DockerSilent,
		What: fmt.Sprintf("Docker does not answer%s (%s): what runs goes on, but no container or network begins, and networks and names of this host may be out of date", words.Since(w.since, now), w.why),
		Do:   "start it (systemctl start docker); if it runs, it hangs: its log says more (journalctl -u docker). Where its API is elsewhere, set GRAPEVINE_DOCKER",
	}}
}
