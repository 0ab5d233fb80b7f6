package driver

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/driver/ports"
	"github.com/grapevine-net/grapevine/pulse"
)

// holder holds ports of the host for one call: what an endpoint has, in this call or
// since another one, nobody else gets.
type holder struct {
	publisher *publisher
	id        string                 // the endpoint that is served
	own       map[ports.Binding]bool // what it has already, by single ports
	fresh     []ports.Binding
}

func (d *publisher) holder(e localEndpoint) *holder {
	return &holder{publisher: d, id: e.ID, own: singles(e.Ports)}
}

func singles(list []ports.Binding) map[ports.Binding]bool {
	out := map[ports.Binding]bool{}
	for _, run := range list {
		for b := range run.Each() {
			out[b] = true
		}
	}
	return out
}

// Hold implements ports.Holder.
func (h *holder) Hold(b ports.Binding) error {
	for id, list := range h.publisher.inTheWay(b) {
		if id == h.id && h.has(b, list) {
			continue
		}
		if host, _ := ifnames(id); !h.publisher.ended(id) || h.publisher.slow[id] && h.publisher.core.links.Exists(host) {
			return &ports.TakenError{Binding: b, By: func() string { return h.publisher.whose(id) }}
		}
		// Its container ended unnoticed.
		if err := h.publisher.unpublishLocked(context.Background(), id); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(h.fresh, b.Overlaps) {
		return &ports.TakenError{Binding: b, By: func() string { return "another -p of the same container" }}
	}
	if err := h.publisher.core.ports.Hold(b); err != nil {
		return err
	}
	h.fresh = append(h.fresh, b)
	if len(h.fresh) > 1000 { // of -P, one by one, and neighbours as a rule
		h.fresh = ports.Runs(h.fresh)
	}
	return nil
}

// inTheWay returns by endpoint what overlaps b, but for what another network of the same
// container gives way with (yields).
func (d *publisher) inTheWay(b ports.Binding) map[string][]ports.Binding {
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	out := map[string][]ports.Binding{}
	for id, e := range d.core.local.endpoints {
		for _, o := range e.Ports {
			if b.Overlaps(o) && (!d.core.local.siblings(b, e) || b.Crosses() == o.Crosses()) {
				out[id] = append(out[id], o)
			}
		}
	}
	return out
}

// siblings reports whether a binding leads to another endpoint of e's container.
func (l *local) siblings(b ports.Binding, e localEndpoint) bool {
	if e.Sandbox == "" {
		return false
	}
	to := b.To.Addr()
	for _, o := range l.endpoints {
		if o.ID != e.ID && o.Sandbox == e.Sandbox && slices.Contains(o.addrs(), to) {
			return true
		}
	}
	return false
}

// has reports whether the endpoint has itself, as it is, what of b is in the way.
func (h *holder) has(b ports.Binding, list []ports.Binding) bool {
	for one := range b.Each() {
		if !h.own[one] && slices.ContainsFunc(list, one.Overlaps) {
			return false
		}
	}
	return true
}

// Release implements ports.Holder. What the endpoint has since before stays.
func (h *holder) Release(b ports.Binding) {
	h.fresh = slices.DeleteFunc(h.fresh, func(f ports.Binding) bool { return f == b })
	for one := range b.Each() {
		if !h.own[one] {
			h.publisher.core.ports.Release(one)
		}
	}
}

// ended reports whether an endpoint's container has ended, as far as its interface shows:
// it goes with the container's namespace, or is put back into the host's by Docker, where
// it also is for a moment before the container starts.
func (d *publisher) ended(id string) bool {
	e, _ := d.core.localEndpoint(id)
	host, peer := ifnames(id)
	return !d.core.links.Exists(host) || d.core.links.Exists(peer) && d.core.cfg.Now().Sub(e.Created) > d.core.cfg.Grace
}

// starting returns the endpoints whose interface is still the host's and that Docker has
// (true), or may have (false): on a busy host a container can take longer than any grace
// to start. It waits for Docker, so nothing may wait for it.
func (d *publisher) starting(ctx context.Context) map[string]bool {
	out := map[string]bool{}
	for id := range d.Published() {
		if host, peer := ifnames(id); !d.core.links.Exists(host) || !d.core.links.Exists(peer) {
			continue
		}
		if has, err := d.core.inDocker(ctx, id); has || err != nil {
			out[id] = err == nil
		}
	}
	return out
}

// portPause is the time between looks for what has changed without a call.
const portPause = 2 * time.Second

// keepPorts looks after the ports until ctx ends.
func (d *publisher) keepPorts(ctx context.Context) {
	for ctx.Err() == nil {
		sleep(ctx, pulse.Wait(portPause))
		if err := d.lookAtPorts(ctx); err != nil && ctx.Err() == nil {
			d.core.cfg.Log.Warn("published ports", "err", err)
		}
	}
}

// lookAtPorts takes ports from endpoints whose interfaces are gone, holds what is not
// held yet, and declares again what could not be declared.
func (d *publisher) lookAtPorts(ctx context.Context) error {
	starting := d.starting(ctx)
	d.publishing.Lock()
	defer d.publishing.Unlock()
	d.slow = starting
	var errs []error
	unheld := map[ports.Binding]error{}
	for id, list := range d.Published() {
		if _, may := starting[id]; d.ended(id) && !may {
			d.core.cfg.Log.Info("ports of a container that is gone are free", "endpoint", id, "ports", list)
			errs = append(errs, d.unpublishLocked(ctx, id))
			continue
		}
		for _, b := range list {
			if err := d.core.ports.Hold(b); err != nil {
				unheld[b] = err
			}
		}
	}
	if d.undeclared {
		errs = append(errs, d.declare(ctx))
	}
	d.noteUnheld(unheld)
	return errors.Join(errs...)
}

// noteUnheld notes which ports others took while no agent ran. To find out who they are
// takes its time.
func (d *publisher) noteUnheld(unheld map[ports.Binding]error) {
	if maps.EqualFunc(unheld, d.unheld, func(error, string) bool { return true }) {
		return
	}
	d.unheld = map[ports.Binding]string{}
	for b, err := range unheld {
		d.unheld[b] = err.Error()
		d.core.cfg.Log.Warn("somebody else uses a published port too; the container gets what comes for it", "err", d.unheld[b])
	}
	list := slices.Sorted(maps.Values(d.unheld))
	d.portProblems.Store(&list)
}

// PortProblems is Driver.PortProblems.
func (d *publisher) PortProblems() []string {
	if list := d.portProblems.Load(); list != nil {
		return slices.Clone(*list)
	}
	return nil
}
