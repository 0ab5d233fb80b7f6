package overlay

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// lookingPath is a fast path that looks at the switch when it is called.
type lookingPath struct {
	h  *host
	mu sync.Mutex
	// Changes between the switch's flows and those of the input, at each call.
	narrow, widen []int
	tally         pipeline.Tally
}

func (l *lookingPath) missing(ctx context.Context, in pipeline.Input) int {
	in.VXLANPort = 4789
	want, err := pipeline.Compile(in)
	if err != nil {
		l.h.t.Error(err)
	}
	dump, err := l.h.bridge.DumpFlows(ctx)
	if err != nil && ctx.Err() == nil {
		l.h.t.Error(err)
	}
	var have []pipeline.Flow
	for _, f := range dump {
		have = append(have, pipelineFlow(f))
	}
	return len(pipeline.Diff(have, want).Lines())
}

func (l *lookingPath) Narrow(ctx context.Context, in pipeline.Input) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.narrow = append(l.narrow, l.missing(ctx, in))
	return nil
}

func (l *lookingPath) Widen(ctx context.Context, in pipeline.Input) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.widen = append(l.widen, l.missing(ctx, in))
	return nil
}

func (l *lookingPath) Tally() (pipeline.Tally, error) { return l.tally, nil }

// The fast path is narrowed before the flows change and widened after, and what it
// carried is in the flows' counters.
func TestFastPathAroundTheFlows(t *testing.T) {
	h := newHost(t)
	h.stop()
	path := &lookingPath{h: h, tally: pipeline.Tally{From: map[netip.Addr]pipeline.Count{addr("10.128.0.2"): {Packets: 1000, Bytes: 98000}}}}
	h.fast = path
	h.start()
	h.container('a', "blue", "10.128.0.2", "10.128.0.1")
	path.mu.Lock()
	if slices.Max(path.narrow) == 0 {
		t.Error("Narrow was never called before flows changed")
	}
	if n := slices.Max(path.widen); n != 0 {
		t.Errorf("Widen was called with %d flows not in place", n)
	}
	path.mu.Unlock()
	ovstest.Eventually(t, 5*time.Second, func() error {
		flows, err := h.Flows(t.Context())
		for _, f := range flows {
			if f.Stage == "spoof-guard" && f.Packets >= 1000 && f.Bytes >= 98000 {
				return err
			}
		}
		return errors.New("no flow has counted what the fast path carried")
	})
}
