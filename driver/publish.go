package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/docker/go-plugins-helpers/network"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/driver/ports"
)

// publisher holds published ports, and declares them to who leads packets.
type publisher struct {
	core         *core
	portProblems atomic.Pointer[[]string] // for PortProblems, which is not to wait; publishing covers its writers
	publishing   sync.Mutex               // held while published ports change; taken before mu
	undeclared   bool                     // ports did not get as far as to the packets
	unheld       map[ports.Binding]string // what somebody else has besides, and who
	// moved is by sandbox what its container had on the network that was its way in before.
	moved map[string][]ports.Binding
	slow  map[string]bool // true: Docker had this endpoint when last asked, whose container is yet to start
}

// Ports are the ports of this host. All calls are idempotent. Publish declares all that
// is published, and returns when packets go there; after an error it is as it was.
type Ports interface {
	ports.Holder
	Publish(context.Context, []ports.Binding) error
}

// A published port is an endpoint's (localEndpoint.Ports, on disk before packets go
// there), and is held and led to the container while the endpoint has it: until Docker
// revokes it, or the container leaves its network, or its interface is gone, whichever
// is seen first; the calls may never come.

// ProgramExternalConnectivity is Driver.ProgramExternalConnectivity.
func (d *publisher) ProgramExternalConnectivity(ctx context.Context, r *network.ProgramExternalConnectivityRequest) (*Empty, error) {
	reqs, err := ports.Parse(r.Options)
	if err != nil {
		return nil, err
	}
	e, _, err := d.core.endpoint(r.NetworkID, r.EndpointID)
	if err != nil {
		return nil, err
	}
	return &Empty{}, d.publish(ctx, e.ID, reqs, r.Options[optNoCross] != true)
}

// optNoCross is by which Engine 28 and later say that another network of the container is its
// way in by IPv6 (libnetwork netlabel.NoProxy6To4).
const optNoCross = "com.docker.network.driver.private.no_proxy_6to4"

// RevokeExternalConnectivity is Driver.RevokeExternalConnectivity.
func (d *publisher) RevokeExternalConnectivity(ctx context.Context, r *network.RevokeExternalConnectivityRequest) (*Empty, error) {
	return &Empty{}, d.unpublish(ctx, r.EndpointID)
}

// publish gives an endpoint the ports asked for, and no others. cross: at IPv6 addresses of the
// host as well, if the endpoint has IPv4 only.
func (d *publisher) publish(ctx context.Context, id string, reqs []ports.Request, cross bool) error {
	d.publishing.Lock()
	defer d.publishing.Unlock()
	e, ok := d.core.localEndpoint(id)
	if !ok {
		return fmt.Errorf("publish ports: endpoint %.12s was removed meanwhile", id)
	}
	open := d.core.cfg.OpenPorts()
	reqs, to := d.shared(e, reqs, cross)
	open.Cross = open.Cross && cross
	open.Before = d.moved[e.Sandbox]
	got, err := ports.Assign(reqs, to, e.Ports, open, d.holder(e))
	if err != nil {
		return err
	}
	got = ports.Runs(got)
	if slices.Equal(got, e.Ports) {
		return nil
	}
	if err := d.setPorts(ctx, id, got); err != nil {
		err = errors.Join(fmt.Errorf("publish ports: %w", err), d.setPorts(context.WithoutCancel(ctx), id, e.Ports))
		d.release(got, e.Ports)
		return err
	}
	d.release(e.Ports, got)
	return nil
}

// unpublish takes all ports from an endpoint; one that has none, or is gone, is no error.
func (d *publisher) unpublish(ctx context.Context, id string) error {
	d.publishing.Lock()
	defer d.publishing.Unlock()
	return d.unpublishLocked(ctx, id)
}

func (d *publisher) unpublishLocked(ctx context.Context, id string) error {
	e, _ := d.core.localEndpoint(id)
	if len(e.Ports) == 0 {
		return nil
	}
	d.remember(e)
	err := d.setPorts(ctx, id, nil)
	d.release(e.Ports, nil)
	if err != nil {
		return fmt.Errorf("withdraw the ports of endpoint %.12s: %w", id, err)
	}
	return nil
}

// remember notes what a container has whose way in may become another of its networks: a port that
// Docker chose stays the same then. What is noted goes with the sandbox.
func (d *publisher) remember(e localEndpoint) {
	live := map[string]bool{}
	d.core.mu.Lock()
	for _, o := range d.core.local.endpoints {
		live[o.Sandbox] = true
	}
	d.core.mu.Unlock()
	maps.DeleteFunc(d.moved, func(sandbox string, _ []ports.Binding) bool { return !live[sandbox] })
	if e.Sandbox == "" {
		return
	}
	if d.moved == nil {
		d.moved = map[string][]ports.Binding{}
	}
	d.moved[e.Sandbox] = e.Ports
}

// setPorts notes an endpoint's ports and declares all.
func (d *publisher) setPorts(ctx context.Context, id string, list []ports.Binding) error {
	if err := d.notePorts(id, list); err != nil {
		return err
	}
	return d.declare(ctx)
}

func (d *publisher) notePorts(id string, list []ports.Binding) error {
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	e, ok := d.core.local.endpoints[id]
	if !ok {
		return nil
	}
	e.Ports = list
	return d.core.local.setEndpoint(e)
}

// effective is what all endpoints have, but for what gives way: at IPv6 addresses, what leads to
// a container's IPv4 address gives way to what leads to an IPv6 address of the same container.
func (d *publisher) effective() (all []ports.Binding) {
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	direct := map[string][]ports.Binding{} // by sandbox
	for _, e := range d.core.local.endpoints {
		for _, b := range e.Ports {
			if !b.Crosses() && b.To.Addr().Is6() && e.Sandbox != "" {
				direct[e.Sandbox] = append(direct[e.Sandbox], b)
			}
		}
	}
	for _, e := range d.core.local.endpoints {
		for _, b := range e.Ports {
			if !b.Crosses() || !slices.ContainsFunc(direct[e.Sandbox], b.Overlaps) {
				all = append(all, b)
			}
		}
	}
	return all
}

// declare publishes what all endpoints have. What failed is tried again by keepPorts.
func (d *publisher) declare(ctx context.Context) error {
	all := d.effective()
	slices.SortFunc(all, ports.Binding.Compare)
	err := d.core.ports.Publish(ctx, all)
	d.undeclared = err != nil
	return err
}

// shared returns the requests and addresses that are an endpoint's to serve: Engine 28 and
// later have a network of the container each for IPv4 and IPv6, and hand over all -p to both.
func (d *publisher) shared(e localEndpoint, reqs []ports.Request, cross bool) ([]ports.Request, []netip.Addr) {
	four, six := d.siblingsServe(e)
	to := slices.DeleteFunc(e.addrs(), func(a netip.Addr) bool { return a.Is4() && four || a.Is6() && six })
	if len(to) == 0 {
		return reqs, e.addrs()
	}
	six = six || !cross && !e.Addr6.IsValid()
	return slices.DeleteFunc(slices.Clone(reqs), func(r ports.Request) bool {
		return r.Host.IsValid() && (r.Host.Is4() && four || r.Host.Is6() && six)
	}), to
}

// siblingsServe says which families other endpoints of the same container serve.
func (d *publisher) siblingsServe(e localEndpoint) (four, six bool) {
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	for _, o := range d.core.local.endpoints {
		if o.ID == e.ID || o.Sandbox == "" || o.Sandbox != e.Sandbox {
			continue
		}
		for _, b := range o.Ports {
			four = four || b.To.Addr().Is4() && !b.Crosses()
			six = six || b.To.Addr().Is6() && !b.Crosses()
		}
	}
	return four, six
}

// release lets go of what is in list and neither in but nor any endpoint's.
func (d *publisher) release(list, but []ports.Binding) {
	kept := singles(but)
	others := map[ports.Binding]bool{} // as hosts' ports
	for _, l := range d.Published() {
		for b := range singles(l) {
			b.To = netip.AddrPort{}
			others[b] = true
		}
	}
	for b := range singles(list) {
		at := b
		at.To = netip.AddrPort{}
		if !kept[b] && !others[at] {
			d.core.ports.Release(b)
		}
	}
}

// Published is Driver.Published.
func (d *publisher) Published() map[string][]ports.Binding {
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	out := map[string][]ports.Binding{}
	for id, e := range d.core.local.endpoints {
		if len(e.Ports) > 0 {
			out[id] = slices.Clone(e.Ports)
		}
	}
	return out
}

// whose names an endpoint's container for people.
func (d *publisher) whose(id string) string {
	e, ok := cluster.Get[cluster.Endpoint](d.core.replica.Snapshot(), id)
	if ok && e.Name != "" {
		return "container " + e.Name
	}
	return fmt.Sprintf("another container (endpoint %.12s)", id)
}
