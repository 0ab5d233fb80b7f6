package reach

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
)

// Watcher keeps the things of this host by the kernel's and Docker's words. Its methods may
// be called concurrently, and none but Run blocks.
type Watcher struct {
	kernel kernel
	watch  *link.Watch
	log    *slog.Logger
	told   chan struct{} // something may have changed

	mu      sync.Mutex
	facts   Facts
	things  []Thing
	own     []netip.Addr
	changed chan struct{} // closed, and replaced, when things or own change
}

// Open reads what the host of the calling thread has, but for the interface ours and the
// tables of its routes, which are the cluster's own.
func Open(ours string, tables []int, log *slog.Logger) (*Watcher, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("read the host's routes: %w", err)
	}
	w := &Watcher{kernel: kernel{handle, ours, tables}, log: log, told: make(chan struct{}, 1), changed: make(chan struct{})}
	if w.watch, err = link.OpenWatch(link.LinkChange, link.AddrChange, link.RouteChange, link.RuleChange); err != nil {
		handle.Close()
		return nil, err
	}
	if err := w.look(); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Close lets go of what Open took; Run has returned, or was never called.
func (w *Watcher) Close() {
	w.watch.Close()
	w.kernel.handle.Close()
}

const (
	// gather is how long changes are gathered, and pause how much longer than a look takes it
	// is until the next one: a router has a million routes, and some of them change all the time.
	gather = 20 * time.Millisecond
	pause  = 9
	// regular is the longest time without a look: what the kernel tells can be lost.
	regular = 30 * time.Second
)

// Run follows the kernel until ctx ends, and then returns nil.
func (w *Watcher) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.hear(ctx) })
	g.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-w.told:
				sleep(ctx, gather)
			case <-time.After(regular):
			}
			began := time.Now()
			if err := w.look(); err != nil {
				w.log.Warn("read what this host reaches", "err", err)
			}
			sleep(ctx, pause*time.Since(began))
		}
	})
	return g.Wait()
}

// hear passes on that the kernel tells of something. What it tells is read anew, all of it.
func (w *Watcher) hear(ctx context.Context) error {
	return w.watch.Run(ctx, func(c link.Change) {
		if c.Kind == link.RouteChange && slices.Contains(w.kernel.tables, c.Table) {
			return // our own
		}
		select {
		case w.told <- struct{}{}:
		default:
		}
	})
}

func sleep(ctx context.Context, t time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(t):
	}
}

// look reads the kernel's part of the facts.
func (w *Watcher) look() error {
	f, err := w.kernel.read()
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	f.Docker = w.facts.Docker
	w.set(f)
	return nil
}

// SetDocker says what networks and pools Docker has.
func (w *Watcher) SetDocker(things []Thing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.facts
	f.Docker = slices.Clone(things)
	w.set(f)
}

func (w *Watcher) set(f Facts) {
	before, had := w.things, w.own
	w.facts, w.things, w.own = f, f.Things(), f.Own()
	if !slices.Equal(before, w.things) || !slices.Equal(had, w.own) {
		close(w.changed)
		w.changed = make(chan struct{})
	}
}

// Things are what this host has. They are not to be changed.
func (w *Watcher) Things() []Thing {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.things
}

// Own are this host's addresses (Facts.Own). They are not to be changed.
func (w *Watcher) Own() []netip.Addr {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.own
}

// Watch returns a channel that is closed when the things or the addresses change; it is taken before these.
func (w *Watcher) Watch() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}
