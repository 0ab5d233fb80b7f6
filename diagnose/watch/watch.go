// Package watch is what a running agent goes on finding out about its host and the ways to the
// others, and what it says of it in status and doctor. Each watch is a type with a Run and its
// Problems; none changes anything.
package watch

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/pulse"
)

// Gossip is what the other hosts answer; *gossip.Gossip is one.
type Gossip interface {
	Alive() []string
	Member(id string) (gossip.Member, bool)
	Try(ctx context.Context, id string, packets bool) gossip.Trial
	Tried(id string) time.Time
	ListKeys() [][]byte
}

// Host is this host and its cluster, as all watches see them.
type Host struct {
	Self     cluster.NodeID
	Settings config.Config
	Underlay link.Underlay
	Started  time.Time
	Gossip   Gossip
	Snapshot func() *cluster.Snapshot
	Nodes    func(*cluster.Snapshot) []api.Node
	CIDRs    func() []netip.Prefix
	Log      *slog.Logger
}

// latest is a list that one goroutine makes and others read.
type latest[T any] struct {
	mu   sync.Mutex
	list []T
}

func (l *latest[T]) set(list []T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = list
}

func (l *latest[T]) now() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// every calls look again and again, until ctx ends (nil) or it returns an error.
func every(ctx context.Context, pause time.Duration, look func() error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-pulse.After(pause):
		}
		if err := look(); err != nil {
			return err
		}
	}
}
