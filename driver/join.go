package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/docker/go-plugins-helpers/network"

	"github.com/grapevine-net/grapevine/host/link"
)

// containerPrefix begins the interface's name in the container: Docker appends a number.
const containerPrefix = "eth"

// longestID is what an endpoint's ID has at most; Docker's have 64 hexadecimal digits.
const longestID = 128

// checkEndpointID refuses an ID that an interface cannot be named after, as that of a shorter one may
// be another's, as gv0 is, or that no record can have.
func checkEndpointID(id string) error {
	switch {
	case len(id) < 12:
		return fmt.Errorf("endpoint ID %.70q is too short", id)
	case len(id) > longestID:
		return fmt.Errorf("endpoint ID %.70q is too long", id)
	case strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' }):
		return fmt.Errorf("endpoint ID %.70q has characters that no ID of Docker's has", id)
	}
	return nil
}

// ifnames returns the names of the two ends of an endpoint's veth pair.
func ifnames(endpoint string) (host, peer string) {
	host = link.PortName(endpoint)
	return host, link.Beside(link.PeerPrefix, host)
}

// Join is Driver.Join.
func (d *endpoints) Join(ctx context.Context, r *network.JoinRequest) (*network.JoinResponse, error) {
	e, n, err := d.core.endpoint(r.NetworkID, r.EndpointID)
	if err != nil {
		return nil, err
	}
	mac, err := net.ParseMAC(e.MAC)
	if err != nil {
		return nil, fmt.Errorf("endpoint %.12s: %w", e.ID, err)
	}
	snap := d.core.replica.Snapshot()
	host, peer := ifnames(e.ID)
	learnt := make(chan error, 1)
	go func() { learnt <- d.labels.learnLabels(ctx, e) }() // Docker and the disk, and the kernel meanwhile
	err = d.core.links.Veth(host, peer, mac, snap.NetworkMTU(n.Name, d.core.cfg.MTU), "grapevine endpoint "+e.ID[:12])
	if err := errors.Join(err, <-learnt); err != nil {
		return nil, err
	}
	vias := routes(snap, n, e)
	d.core.mu.Lock()
	d.core.told[e.ID] = vias
	d.core.mu.Unlock()
	noted := make(chan error, 1)
	go func() { noted <- d.setJoined(e.ID, true, r.SandboxKey) }() // the disk, and the switch meanwhile
	err = d.core.keeping(ctx, e.Network, func() error { return d.core.overlay.Attach(ctx, e.ID, host) })
	if err != nil {
		err = fmt.Errorf("attach endpoint %.12s to the switch: %w", e.ID, err)
	}
	if err = errors.Join(err, <-noted); err != nil {
		if undo := d.unplug(context.WithoutCancel(ctx), e.ID); undo != nil {
			d.core.cfg.Log.Warn("what a container that does not start has already is not undone yet", "endpoint", e.ID, "error", undo)
		}
		return nil, err
	}
	if r.SandboxKey != "" {
		d.core.names.Attach(e.ID, r.SandboxKey)
		d.answered(ctx, r.SandboxKey)
	}
	select {
	case d.core.joined <- struct{}{}:
	default:
	}
	reply := &network.JoinResponse{InterfaceName: network.InterfaceName{SrcName: peer, DstPrefix: containerPrefix}}
	for _, v := range vias {
		const nextHop = 0 // libnetwork types.NEXTHOP
		reply.StaticRoutes = append(reply.StaticRoutes, &network.StaticRoute{
			Destination: v.Prefix.String(), RouteType: nextHop, NextHop: v.Gateway.String(),
		})
	}
	for _, a := range e.addrs() {
		_, gw, _ := n.subnetOf(a)
		switch {
		case !gw.IsValid() || n.Internal:
		case a.Is6():
			reply.GatewayIPv6 = gw.String()
		default:
			reply.Gateway = gw.String()
		}
	}
	return reply, nil
}

// answerPatience is how long Join waits for the resolver in a sandbox: a container without it starts all the same.
const answerPatience = time.Second

// answered waits until names are answered in a sandbox. From Engine 28 on it is there when Docker calls Join, and a program whose first
// act is a question would ask Docker, who does not know other hosts.
func (d *endpoints) answered(ctx context.Context, sandbox string) {
	if d.core.cfg.Answered == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	d.core.cfg.Answered(ctx, sandbox)
}

func (d *endpoints) setJoined(id string, joined bool, sandbox string) error {
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	if !joined {
		delete(d.core.told, id)
	}
	e, ok := d.core.local.endpoints[id]
	if !ok || e.Joined == joined && e.Sandbox == sandbox {
		return nil
	}
	e.Joined, e.Sandbox = joined, sandbox
	return d.core.local.setEndpoint(e)
}

// Leave is Driver.Leave.
func (d *endpoints) Leave(ctx context.Context, r *network.LeaveRequest) (*Empty, error) {
	return &Empty{}, d.unplug(ctx, r.EndpointID)
}

// detachPatience is how long Docker waits for a switch that does not answer to lose a port. The
// interface goes all the same, and the switch loses it as soon as it answers.
const detachPatience = 10 * time.Second

// unplug takes an endpoint's ports and its port in the switch, and deletes its interface;
// the resolver leaves its sandbox.
func (d *endpoints) unplug(ctx context.Context, id string) error {
	if err := checkEndpointID(id); err != nil {
		return err
	}
	errs := []error{d.publisher.unpublish(ctx, id)}
	detach, cancel := context.WithTimeout(ctx, detachPatience)
	defer cancel()
	if err := d.core.overlay.Detach(detach, id); err != nil {
		errs = append(errs, fmt.Errorf("take endpoint %.12s out of the switch: %w", id, err))
	}
	host, _ := ifnames(id)
	errs = append(errs, d.core.links.Delete(host), d.setJoined(id, false, ""))
	d.core.names.Detach(id) // last: restore attaches what is noted as joined
	return errors.Join(errs...)
}

// restore puts the interfaces of this host's running containers into the switch
// again, and the resolver into their sandboxes, after the agent or the switch was
// started anew. Those that are gone with their containers are left for the watcher
// to collect.
func (d *endpoints) restore(ctx context.Context) {
	d.core.mu.Lock()
	var joined []string
	for id, e := range d.core.local.endpoints {
		if e.Joined {
			joined = append(joined, id)
		}
		if e.Sandbox != "" {
			d.core.names.Attach(id, e.Sandbox)
		}
	}
	d.core.mu.Unlock()
	for _, id := range joined {
		d.attachAgain(ctx, id)
	}
}

// attachAgain puts an endpoint into the switch that is still joined, and has its interface: its
// container may have gone meanwhile, and the watcher takes out what it left.
func (d *endpoints) attachAgain(ctx context.Context, id string) {
	host, _ := ifnames(id)
	d.core.mu.Lock()
	joined := d.core.local.endpoints[id].Joined
	d.core.mu.Unlock()
	if !joined || !d.core.links.Exists(host) {
		return
	}
	if err := d.core.overlay.Attach(ctx, id, host); err != nil && ctx.Err() == nil {
		d.core.cfg.Log.Info("endpoint not attached again", "endpoint", id, "err", err)
	}
}

// Sandbox is Driver.Sandbox.
func (d *endpoints) Sandbox(endpointID string) string {
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	if e, ok := d.core.local.endpoints[endpointID]; ok && e.Joined {
		return e.Sandbox
	}
	return ""
}
