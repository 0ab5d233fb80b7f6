package driver

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/docker"
)

// Docker's lists do not tell a container's aliases, nor its link-local addresses, which it
// puts on the interface without a word to us; inspecting it does, and waits for
// a lock that is held while a container starts, and calls us. So containers are
// inspected beside the looks, which go on meanwhile, and each once.

const (
	inspectTimeout = 2 * time.Second
	inspectAtOnce  = 4
	// inspectTries is how often an endpoint is looked for in what inspecting tells:
	// one that is not there is just coming or going.
	inspectTries = 5
)

// inspected is what inspecting told of an endpoint.
type inspected struct {
	container string   // its name then: Docker's names for the endpoint go with it
	aliases   []string // as aliasesOf returns them
	linkLocal []netip.Addr
}

// inspector inspects containers in the background, and keeps what they told.
type inspector struct {
	docker *docker.Client
	told   func() // called when more is known
	slots  chan struct{}

	mu    sync.Mutex
	ctx   context.Context // nil: it does not run
	work  sync.WaitGroup
	busy  map[string]bool      // containers
	known map[string]inspected // by endpoint
}

func newInspector(d *docker.Client, told func()) *inspector {
	return &inspector{docker: d, told: told, slots: make(chan struct{}, inspectAtOnce), busy: map[string]bool{}, known: map[string]inspected{}}
}

// run lets inspections happen until ctx ends, and waits for those under way.
func (i *inspector) run(ctx context.Context) {
	i.mu.Lock()
	i.ctx = ctx
	i.mu.Unlock()
	i.told() // there may be some to do
	<-ctx.Done()
	i.mu.Lock()
	i.ctx = nil
	i.mu.Unlock()
	i.work.Wait()
}

// ask has the containers inspected whose endpoints, among ours, are not yet known, and
// forgets endpoints that are not ours any more. It does not wait. It returns what
// is known.
func (i *inspector) ask(containers []docker.Container, ours map[string]localEndpoint) map[string]inspected {
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.DeleteFunc(i.known, func(id string, _ inspected) bool { _, ok := ours[id]; return !ok })
	for _, c := range containers {
		var wanted []string
		for _, at := range c.Networks {
			_, mine := ours[at.EndpointID]
			if k, have := i.known[at.EndpointID]; mine && (!have || k.container != c.Name) {
				wanted = append(wanted, at.EndpointID)
			}
		}
		if len(wanted) == 0 || i.busy[c.ID] || i.ctx == nil {
			continue
		}
		i.busy[c.ID] = true
		ctx := i.ctx
		i.work.Go(func() { i.inspect(ctx, c.ID, wanted) })
	}
	return maps.Clone(i.known)
}

// inspect inspects a container until it has told of the wanted endpoints.
func (i *inspector) inspect(ctx context.Context, id string, wanted []string) {
	defer i.told()
	defer func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(i.busy, id)
	}()
	pause := minRetry
	for tries := 0; tries < inspectTries && ctx.Err() == nil; pause = min(2*pause, maxRetry) {
		details, err := i.once(ctx, id)
		switch {
		case errors.Is(err, docker.ErrNotFound):
			return
		case err == nil:
			tries++
			if i.note(details, wanted) {
				return
			}
		}
		sleep(ctx, pause)
	}
}

func (i *inspector) once(ctx context.Context, id string) (docker.Details, error) {
	select {
	case i.slots <- struct{}{}:
		defer func() { <-i.slots }()
	case <-ctx.Done():
		return docker.Details{}, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	return i.docker.Inspect(ctx, id)
}

// note keeps what a container told, and reports whether that is all that is wanted.
func (i *inspector) note(d docker.Details, wanted []string) (all bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	all = true
	for _, id := range wanted {
		names, ok := d.Names[id]
		if !ok {
			all = false
			continue
		}
		i.known[id] = inspected{container: d.Name, aliases: names, linkLocal: linkLocal(d.LinkLocal[id])}
	}
	return all
}

// Untold are aliases of an endpoint of this host that the cluster is not told, since its record
// has no room for them or they are no names: only containers of this host know them.
type Untold struct {
	Container, Network string
	Aliases            []string
}

// Untellable is Driver.Untellable.
func (d *mirror) Untellable() []string {
	if list := d.untellable.Load(); list != nil {
		return slices.Clone(*list)
	}
	return nil
}

// Untold is Driver.Untold.
func (d *mirror) Untold() []Untold {
	if list := d.untold.Load(); list != nil {
		return slices.Clone(*list)
	}
	return nil
}

// aliasesOf returns the names of an endpoint beside its container's name and ID: those that
// inspecting told or, until it has, those that are on record. What a container's labels say is no
// name of it: of Compose's service are also containers that it gives the service's name on no
// network (`compose run`), or not on this one (`docker network connect`).
func (v view) aliasesOf(c docker.Container, endpoint string, on cluster.Endpoint) []string {
	var all []string
	if told, ok := v.inspected[endpoint]; ok {
		all = slices.Clone(told.aliases)
	} else if on.Container == c.ID {
		all = on.AllAliases()
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(a string) bool { return a == "" || a == c.Name || a == c.ID[:min(12, len(c.ID))] })
}

// maxLinkLocal is how many link-local addresses of an endpoint are told to the cluster.
const maxLinkLocal = 16

// linkLocal reads the addresses of --link-local-ip. What is none of such Docker refuses, or
// the container has it for nothing.
func linkLocal(texts []string) (out []netip.Addr) {
	for _, t := range texts {
		if a, err := netip.ParseAddr(t); err == nil && a.Unmap().IsLinkLocalUnicast() && a.Zone() == "" && len(out) < maxLinkLocal {
			out = append(out, a.Unmap())
		}
	}
	return out
}

// linkLocalOf returns the link-local addresses of an endpoint, as aliasesOf its names.
func (v view) linkLocalOf(c docker.Container, endpoint string, on cluster.Endpoint) []netip.Addr {
	if told, ok := v.inspected[endpoint]; ok {
		return told.linkLocal
	}
	if on.Container == c.ID {
		return on.LinkLocal
	}
	return nil
}
