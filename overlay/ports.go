package overlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// Roles of ports, in external_ids:grapevine.
const (
	roleTunnel   = "tunnel"
	roleGateway  = "gateway"
	roleEndpoint = "endpoint"
)

// switchPorts makes the bridge and the tunnel's and endpoints' ports. The first
// error is the tunnel's.
func (r *reconciler) switchPorts(ctx context.Context, snap *cluster.Snapshot, why reason, detached map[string]bool, problems map[string]error) (tunnel, err error) {
	if why >= ports {
		if err := r.cfg.Bridge.Ensure(ctx); err != nil {
			return nil, err
		}
		if err := r.readPorts(ctx); err != nil {
			return nil, err
		}
	}
	if _, there := r.ports[r.tunnel]; !there || why == everything {
		tunnel = r.ensureTunnel(ctx)
	}
	add, del, err := r.wantedPorts(snap, why, detached, problems)
	if err != nil {
		return tunnel, err
	}
	if len(add)+len(del) > 0 {
		if err := r.setPorts(ctx, add, del); err != nil {
			return tunnel, err
		}
	}
	if r.cfg.Opened != nil && (len(add) > 0 || why >= ports) {
		r.cfg.Opened()
	}
	return tunnel, err
}

// ensureTunnel makes the tunnel's device and remembers its port. A tunnel that
// cannot be looked at now keeps the port that it has.
func (r *reconciler) ensureTunnel(ctx context.Context) error {
	name, err := r.cfg.Tunnel.Ensure(ctx)
	if err != nil {
		return fmt.Errorf("set up the tunnel: %w", err)
	}
	r.tunnel = name
	if err := r.readPorts(ctx); err != nil { // it may have made the port itself, or anew
		return err
	}
	return r.reopenTunnel(ctx)
}

// reopenTunnel takes the tunnel's port off a switch that still has a device open which is gone, so
// that it is added again: of another one with the same name, made before the switch looked, it
// does not notice, and hears nothing from other hosts any more.
func (r *reconciler) reopenTunnel(ctx context.Context) error {
	p, there := r.ports[r.tunnel]
	if !there || p.Role != roleTunnel || p.OFPort == 0 || r.cfg.Mode != pipeline.HeaderBits {
		return nil
	}
	stale, err := link.StaleReader(r.tunnel)
	if err != nil || !stale {
		return nil //nolint:nilerr // what cannot be looked at is taken for whole
	}
	r.log.Warn("the switch reads a tunnel device that is gone: opening the new one")
	return r.setPorts(ctx, nil, []string{r.tunnel})
}

// setPorts changes ports and notes what became of them.
func (r *reconciler) setPorts(ctx context.Context, add []ovs.PortSpec, del []string) error {
	defer func() { r.touched = time.Now() }()
	state, err := r.cfg.Bridge.SetPorts(ctx, add, del)
	if err != nil {
		return err
	}
	r.ports = state.Ports
	return nil
}

func (r *reconciler) readPorts(ctx context.Context) error {
	state, err := r.cfg.Bridge.State(ctx)
	if err != nil {
		return err
	}
	r.ports = state.Ports
	return nil
}

// wantedPorts compares the bridge's ports with the endpoints of this host and the
// tunnel's device. Only ports that carry our mark are ever deleted.
func (r *reconciler) wantedPorts(snap *cluster.Snapshot, why reason, detached map[string]bool, problems map[string]error) (add []ovs.PortSpec, del []string, err error) {
	links, err := linksFor(why)
	if err != nil {
		return nil, nil, err
	}
	wanted := map[string]bool{r.tunnel: true, InsidePort: r.cfg.Mode == pipeline.Metadata} // which the tunnel sees to
	if _, there := r.ports[r.tunnel]; !there && r.tunnel != "" {
		add = append(add, ovs.PortSpec{Name: r.tunnel, Role: roleTunnel})
	}
	for _, e := range localEndpoints(snap, r.cfg.Self) {
		name := link.PortName(e.ID)
		port, there := r.ports[name]
		if detached[e.ID] || (there && port.OFPort != 0 && port.Endpoint == e.ID) {
			wanted[name] = !detached[e.ID]
			if why == everything && wanted[name] {
				links.keepUp(r.log, name)
			}
			continue
		}
		// Not before it is up: ovs-vswitchd reads an interface's flags and sets them again
		// with "promiscuous" added, so that one that goes up in between is down for ever.
		switch l, exists, err := links.get(name); {
		case err != nil:
			return nil, nil, err
		case !exists:
			problems[e.ID] = fmt.Errorf("there is no network interface %s", name)
			continue
		case !l.Up:
			problems[e.ID] = fmt.Errorf("the network interface %s is down", name)
			continue
		}
		wanted[name] = true
		if r.cfg.Settled != nil && !r.cfg.Settled() {
			r.deferred = true
			problems[e.ID] = fmt.Errorf("port %s waits for the switch to have begun", name)
			continue
		}
		if there && why != everything { // ovs-vswitchd may be about to take it
			problems[e.ID] = fmt.Errorf("port %s is not ready: %s", name, port.Error)
			continue
		}
		add = append(add, ovs.PortSpec{Name: name, Role: roleEndpoint, Endpoint: e.ID})
		if there {
			del = append(del, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.ports)) {
		role := r.ports[name].Role
		if !wanted[name] && (role == roleEndpoint || role == roleTunnel) {
			del = append(del, name)
		}
	}
	return add, del, nil
}

// brokenPorts says which of our ports the switch cannot use.
func brokenPorts(ports map[string]ovs.Port) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(ports)) {
		if p := ports[name]; p.Role != "" && p.OFPort == 0 {
			errs = append(errs, fmt.Errorf("port %s is not usable: %s", name, p.Error))
		}
	}
	return errors.Join(errs...)
}

// gatewayPort makes the gateway's internal port, or tells the switch its MTU (bytes),
// and says whether it had to. lost: somebody has deleted its interface, which the switch does
// not notice.
func (r *reconciler) gatewayPort(ctx context.Context, mtu int, lost bool) (made bool, err error) {
	if r.cfg.Gateway == nil {
		return false, nil
	}
	name := r.cfg.Gateway.PortName()
	p, there := r.ports[name]
	if there && p.Role == roleGateway && p.OFPort != 0 && mtu == r.gatewayMTU && !lost {
		return false, nil
	}
	if lost && there && p.Role == roleGateway { // in a step of its own: the switch would keep what it has open
		if err := r.setPorts(ctx, nil, []string{name}); err != nil {
			return false, err
		}
	}
	err = r.setPorts(ctx, []ovs.PortSpec{{
		Name: name, Type: "internal", Role: roleGateway, MAC: r.cfg.Gateway.MAC().String(), MTU: mtu,
	}}, nil)
	if err == nil {
		r.gatewayMTU = mtu
	}
	return err == nil, err
}

// planPorts is the OpenFlow ports as Plan wants them.
func (r *reconciler) planPorts() Ports {
	p := Ports{Tunnel: r.ports[r.tunnel].OFPort, Inside: r.ports[InsidePort].OFPort, Endpoints: map[string]uint32{}}
	if r.cfg.Gateway != nil {
		p.Gateway, p.GatewayMAC = r.ports[r.cfg.Gateway.PortName()].OFPort, r.cfg.Gateway.MAC()
	}
	for _, port := range r.ports {
		if port.Role == roleEndpoint && port.Endpoint != "" {
			p.Endpoints[port.Endpoint] = port.OFPort
		}
	}
	return p
}

// knownLinks is this namespace's interfaces of ours by name; nil: each is asked for, since one
// is all that is new.
type knownLinks map[string]link.Link

func linksFor(why reason) (knownLinks, error) {
	if why != everything {
		return nil, nil
	}
	interfaces, err := link.List(link.Ours)
	if err != nil {
		return nil, err
	}
	l := knownLinks{}
	for _, i := range interfaces {
		l[i.Name] = i
	}
	return l, nil
}

func (l knownLinks) get(name string) (link.Link, bool, error) {
	if l != nil {
		found, exists := l[name]
		return found, exists, nil
	}
	found, err := link.Get(name)
	if errors.Is(err, link.ErrNotFound) {
		return link.Link{}, false, nil
	}
	return found, err == nil, err
}

// keepUp sets an attached endpoint's interface up that somebody has set down.
func (l knownLinks) keepUp(log *slog.Logger, name string) {
	if found, exists, err := l.get(name); err != nil || !exists || found.Up {
		return
	}
	if err := link.Up(name); err != nil {
		log.Warn("a container's interface is down and cannot be set up", "interface", name, "error", err)
		return
	}
	log.Warn("a container's interface was down and is up again", "interface", name)
}
