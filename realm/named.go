package realm

import (
	"context"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
)

// Source is where snapshots come from (package replica). The channel is closed at the change after the call; it is taken before the snapshot.
type Source interface {
	Snapshot() *cluster.Snapshot
	Watch() <-chan struct{}
}

// naming is how long somebody who names a network waits for the names of networks that have just been made.
const naming = 3 * time.Second

// Named returns once each network of the cluster has its name, or that takes long. A driver is not told how a network is named: Docker
// says so a moment after `docker network create` has returned, and a script goes on at once.
func Named(ctx context.Context, s Source) {
	ctx, cancel := context.WithTimeout(ctx, naming)
	defer cancel()
	for {
		changed := s.Watch()
		if !nameless(s.Snapshot()) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

func nameless(snap *cluster.Snapshot) bool {
	for n := range cluster.All[cluster.Network](snap) {
		if n.Provisional() {
			return true
		}
	}
	return false
}

// WhenNamed answers as answer does, once networks have their names.
func WhenNamed[Q, A any](s Source, answer func(context.Context, Q) (A, error)) func(context.Context, Q) (A, error) {
	return func(ctx context.Context, q Q) (A, error) {
		Named(ctx, s)
		return answer(ctx, q)
	}
}
