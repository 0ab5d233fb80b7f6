package overlay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/overlay/gateway"
)

// What the overlay has of its host beside the switch (interfaces, addresses, routes, rules,
// tc programs, sysctls) others may take away: systemd-networkd removes rules that it does not
// know, an administrator sets a link down. The kernel tells of it (link.Watch); then what is
// concerned is looked at, named, and put back.

// Links looks after the host's interfaces of an endpoint whose port of the bridge is given.
type Links interface {
	// Missing says what Mend would set right, or cannot, for people, and sets nothing.
	Missing(port string) []string
	Mend(port string) error
}

// inspected is a Tunnel whose parts others may take away.
type inspected interface {
	Devices() []string
	Missing(context.Context) []string
}

// guardedGateway is a Gateway whose parts others may take away.
type guardedGateway interface {
	Missing(gateway.Config) []string
	WrongSwitches(gateway.Config) []string
}

// damage is what may have been taken away.
type damage struct {
	gateway, switches, tunnel bool
	interfaces                map[int]bool    // whose tc programs may be gone, by index
	ports                     map[string]bool // endpoints' ports whose interfaces may be
}

func (d *damage) none() bool {
	return !d.gateway && !d.switches && !d.tunnel && len(d.interfaces)+len(d.ports) == 0
}

// ours says which of our things are where. It belongs to who hears the kernel.
type ours struct {
	gateway string
	index   int // of the gateway's interface, as far as it was told
	tunnel  []string
}

// note adds what a change of the kernel's may have done to us. Of what comes or is set
// by ourselves nothing is noted, as far as that can be told.
func (o *ours) note(c link.Change, d *damage) {
	switch c.Kind {
	case link.AnyChange:
		d.gateway, d.tunnel = true, true
	case link.RuleChange:
		d.gateway = d.gateway || c.Gone && gateway.IsRule(c.Table, c.Priority)
	case link.RouteChange:
		d.gateway = d.gateway || gateway.IsTable(c.Table)
	case link.AddrChange:
		d.gateway = d.gateway || c.Index == o.index
	case link.SwitchChange:
		d.switches = true
	case link.FilterChange:
		if c.Gone {
			if d.interfaces == nil {
				d.interfaces = map[int]bool{}
			}
			d.interfaces[c.Index] = true
		}
	case link.LinkChange:
		o.noteLink(c, d)
	}
}

func (o *ours) noteLink(c link.Change, d *damage) {
	switch {
	case c.Name == o.gateway && c.Name != "":
		d.gateway, o.index = true, c.Index
	case slices.Contains(o.tunnel, c.Name):
		d.tunnel = true
	case (c.Gone || !c.Up) && link.PortOf(c.Name) != "":
		if d.ports == nil {
			d.ports = map[string]bool{}
		}
		d.ports[link.PortOf(c.Name)] = true
	}
}

// settle is how long the kernel's words are gathered, mendPause the time between two repairs,
// lest a fight with another program takes all of the processor.
const (
	settle    = 30 * time.Millisecond
	mendPause = time.Second
)

// watchHost hears the kernel and wakes the loop.
func (o *Overlay) watchHost(ctx context.Context, w *link.Watch) error {
	defer w.Close()
	places := ours{}
	if o.cfg.Gateway != nil {
		places.gateway = o.cfg.Gateway.PortName()
		if l, err := link.Get(places.gateway); err == nil {
			places.index = l.Index
		}
	}
	if t, ok := o.cfg.Tunnel.(inspected); ok {
		places.tunnel = t.Devices()
	}
	return w.Run(ctx, func(c link.Change) {
		o.mu.Lock()
		places.note(c, &o.hurt)
		hurt := !o.hurt.none()
		o.mu.Unlock()
		if hurt {
			poke(o.damaged)
		}
	})
}

// openWatch opens the watch; without one damage is found when everything is looked at.
func (o *Overlay) openWatch() *link.Watch {
	w, err := link.OpenWatch(link.LinkChange, link.AddrChange, link.RouteChange, link.RuleChange, link.FilterChange, link.SwitchChange)
	if err != nil {
		o.log.Warn("what others do to the host's network is seen late", "error", err)
		return nil
	}
	return w
}

// takeDamage returns what may be hurt, and forgets it.
func (o *Overlay) takeDamage() damage {
	o.mu.Lock()
	defer o.mu.Unlock()
	d := o.hurt
	o.hurt = damage{}
	return d
}

// inspect looks at what may be hurt, puts back what is, and reports whether a pass has to do
// the rest. What stays missing is among the Problems.
func (o *Overlay) inspect(ctx context.Context, r *reconciler, d damage) (more bool) {
	o.mu.Lock()
	known := o.missing
	o.mu.Unlock()
	if len(known) > 0 {
		d = r.anything()
	}
	missing := r.missing(ctx, d)
	if len(missing) == 0 {
		o.setMissing(nil, known) // a pass has put it back
		return false
	}
	o.setMissing(missing, nil)
	in := func(list []string) func(string) bool {
		return func(what string) bool { return slices.Contains(list, what) }
	}
	if fresh := slices.DeleteFunc(slices.Clone(missing), in(known)); len(fresh) > 0 {
		o.log.Warn("something that grapevine needs of this host has gone or changed; putting it back", "what", fresh)
	}
	port := r.ports[r.tunnel].OFPort
	err := r.mend(ctx, d)
	left := r.missing(ctx, d)
	mended := slices.DeleteFunc(missing, in(left))
	o.setMissing(left, mended)
	if err != nil && len(mended) > 0 {
		o.log.Warn("not all can be put back", "error", err)
	}
	// A tunnel that was made anew has another number, which the flows do not know yet.
	return passMayHelp(known, left) || r.ports[r.tunnel].OFPort != port
}

// passMayHelp reports whether a pass is to do what mending has left: once for each thing that
// is left, among them what went while the rest was put back.
func passMayHelp(known, left []string) bool {
	return slices.ContainsFunc(left, func(what string) bool { return !slices.Contains(known, what) })
}

// anything is damage to all that there is.
func (r *reconciler) anything() damage {
	d := damage{gateway: true, tunnel: true, ports: map[string]bool{}}
	for name := range r.ports {
		d.ports[name] = true
	}
	return d
}

// missing says what of the damage is real.
func (r *reconciler) missing(ctx context.Context, d damage) (list []string) {
	if g, ok := r.cfg.Gateway.(guardedGateway); ok && r.gatewayFor != nil {
		if d.gateway {
			missing := g.Missing(r.gateway)
			if !r.known && r.lostGateway() { // without a switch there may be none
				missing = nil
			}
			list = append(list, missing...)
		} else if d.switches {
			list = append(list, g.WrongSwitches(r.gateway)...)
		}
	}
	if t, ok := r.cfg.Tunnel.(inspected); ok && r.tunnel != "" && r.hurtTunnel(d) {
		list = append(list, t.Missing(ctx)...)
	}
	for _, port := range r.hurtPorts(d) {
		list = append(list, r.cfg.Links.Missing(port)...)
	}
	if f, ok := r.cfg.Fast.(interface{ Lost() []string }); ok && len(d.interfaces) > 0 {
		for _, name := range f.Lost() {
			list = append(list, fmt.Sprintf("the fast path's program at %s is gone (tc)", name))
		}
	}
	return list
}

// mend puts back what is missing, but for what a pass does.
func (r *reconciler) mend(ctx context.Context, d damage) error {
	var errs []error
	if r.cfg.Gateway != nil && r.gatewayFor != nil && (d.gateway || d.switches) {
		errs = append(errs, r.cfg.Gateway.Ensure(ctx, r.gateway))
	}
	if r.tunnel != "" && r.hurtTunnel(d) {
		errs = append(errs, r.ensureTunnel(ctx))
	}
	for _, port := range r.hurtPorts(d) {
		if len(r.cfg.Links.Missing(port)) > 0 {
			errs = append(errs, r.cfg.Links.Mend(port))
		}
	}
	return errors.Join(errs...)
}

// hurtTunnel reports whether the tunnel is to be looked at: its programs, too, whose device
// may have gone meanwhile.
func (r *reconciler) hurtTunnel(d damage) bool { return d.tunnel || len(d.interfaces) > 0 }

// hurtPorts are the attached endpoints' ports that are to be looked at.
func (r *reconciler) hurtPorts(d damage) (list []string) {
	if r.cfg.Links == nil {
		return nil
	}
	names := map[string]bool{}
	for index := range d.interfaces {
		names[link.PortOf(link.Name(index))] = true
	}
	for name, p := range r.ports {
		if p.Role == roleEndpoint && p.OFPort != 0 && (d.ports[name] || names[name]) {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// repairs remembers what was put back and when, to say so when the same happens again and again.
type repairs struct {
	at    map[string][]time.Time // by what it was, within oftenWhile
	total int
}

// often is how many repairs of one thing within a while are a problem of their own: somebody who
// sets several things by hand does not fight with us.
const (
	often      = 3
	oftenWhile = time.Minute
)

// note adds a repair, and forgets what is long ago.
func (r *repairs) note(what []string, now time.Time) {
	r.total++
	if r.at == nil {
		r.at = map[string][]time.Time{}
	}
	for _, w := range what {
		r.at[w] = append(r.at[w], now)
	}
	for w, at := range r.at {
		if r.at[w] = within(at, now); len(r.at[w]) == 0 {
			delete(r.at, w)
		}
	}
}

func within(at []time.Time, now time.Time) []time.Time {
	return slices.DeleteFunc(slices.Clone(at), func(t time.Time) bool { return now.Sub(t) > oftenWhile })
}

// problem says what is undone again and again, if anything is.
func (r *repairs) problem(now time.Time) error {
	most, what := 0, ""
	for _, w := range slices.Sorted(maps.Keys(r.at)) {
		if n := len(within(r.at[w], now)); n > most {
			most, what = n, w
		}
	}
	if most < often {
		return nil
	}
	return fmt.Errorf("something on this host undoes again and again what grapevine sets, %d times within the last minute: %s "+
		"(another program, such as systemd-networkd, which does so without ManageForeignRoutes=no and ManageForeignRoutingPolicyRules=no in networkd.conf)", most, what)
}

// setMissing notes what is missing now, and what was put back.
func (o *Overlay) setMissing(list, mended []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.missing = list
	if len(mended) > 0 {
		o.repairs.note(mended, time.Now())
	}
}

// repaired is how often something was put back.
func (o *Overlay) repaired() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.repairs.total
}

// lacks reports whether something is missing.
func (o *Overlay) lacks() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.missing) > 0
}

// lostGateway reports whether the gateway's interface is gone.
func (r *reconciler) lostGateway() bool {
	if r.cfg.Gateway == nil {
		return false
	}
	_, err := link.Get(r.cfg.Gateway.PortName())
	return errors.Is(err, link.ErrNotFound)
}
