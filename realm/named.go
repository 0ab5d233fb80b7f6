package realm

import (
	"context"
	"sync"
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

// Names waits for the names of networks. Use NewNames.
type Names struct {
	source Source
	mu     sync.Mutex
	never  map[string]bool // networks that were waited for in vain: of a host that is gone, or with a name that nobody can tell
}

// NewNames returns what waits for the names of a cluster's networks.
func NewNames(s Source) *Names { return &Names{source: s, never: map[string]bool{}} }

// Wait returns once each network of the cluster has its name, or that takes long, which is waited for once. A driver is not told how a network
// is named: Docker says so a moment after `docker network create` has returned, and a script goes on at once.
func (n *Names) Wait(ctx context.Context) {
	timer := time.NewTimer(naming)
	defer timer.Stop()
	for {
		changed := n.source.Watch()
		missing := n.missing()
		if len(missing) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			n.mu.Lock()
			defer n.mu.Unlock()
			for _, name := range missing {
				n.never[name] = true
			}
			return
		case <-changed:
		}
	}
}

// missing are the networks whose names are worth waiting for.
func (n *Names) missing() (list []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for one := range cluster.All[cluster.Network](n.source.Snapshot()) {
		if one.Provisional() && !n.never[one.Name] {
			list = append(list, one.Name)
		}
	}
	return list
}

// WhenNamed answers as answer does, once networks have their names.
func WhenNamed[Q, A any](n *Names, answer func(context.Context, Q) (A, error)) func(context.Context, Q) (A, error) {
	return func(ctx context.Context, q Q) (A, error) {
		n.Wait(ctx)
		return answer(ctx, q)
	}
}
