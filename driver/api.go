package driver

import (
	"context"
	"net/netip"

	"github.com/docker/go-plugins-helpers/network"
	"github.com/grapevine-net/grapevine/driver/ports"
)

// Untold returns what there is of these. It waits for nothing.
func (d *Driver) Untold() []Untold {
	return d.mirror.Untold()
}

// Untellable returns the IDs of networks of this host's Docker whose names can be none in the cluster, so that no other
// host has them. It waits for nothing.
func (d *Driver) Untellable() []string {
	return d.mirror.Untellable()
}

// Namesakes returns them as they were at the last look. It waits for nothing.
func (d *Driver) Namesakes() []Namesake {
	return d.mirror.Namesakes()
}

// Barred returns them as they were at the last look, if they have been so for a while. It waits for nothing.
func (d *Driver) Barred() []Barred {
	return d.mirror.bars.lasting(d.core.cfg.Now())
}

// Refused returns them as they were at the last look. It waits for nothing.
func (d *Driver) Refused() []Refused {
	return d.mirror.Refused()
}

// Borrowers returns them as they were at the last look. It waits for nothing.
func (d *Driver) Borrowers() []Borrower {
	return d.mirror.Borrowers()
}

// MayLease refuses an address of a subnet that is of no network of ours on this host. An exact one may
// be an auxiliary address, which Docker asks for before it makes the network: it is refused once Docker
// has listed the network with another driver.
func (d *Driver) MayLease(p netip.Prefix, exact bool) error {
	return d.mirror.MayLease(p, exact)
}

// CreateEndpoint implements NetworkDriver.CreateEndpoint: the address becomes
// the endpoint's, and its record goes to the cluster, both durable on return. Of
// the interface only what the request left open is returned, or Docker rolls back.
func (d *Driver) CreateEndpoint(ctx context.Context, r *network.CreateEndpointRequest) (*network.CreateEndpointResponse, error) {
	return d.endpoints.CreateEndpoint(ctx, r)
}

// DeleteEndpoint implements NetworkDriver.DeleteEndpoint. Docker forgets the
// endpoint whatever is returned: one whose end cannot be stored here is collected when it is
// missing in Docker's lists. One that is gone is no error.
func (d *Driver) DeleteEndpoint(ctx context.Context, r *network.DeleteEndpointRequest) (*Empty, error) {
	return d.endpoints.DeleteEndpoint(ctx, r)
}

// EndpointInfo implements NetworkDriver.EndpointOperInfo.
func (d *Driver) EndpointInfo(ctx context.Context, r *network.InfoRequest) (*network.InfoResponse, error) {
	return d.endpoints.EndpointInfo(ctx, r)
}

// PortProblems says, for people, which published ports somebody else took while no agent
// ran. It waits for nothing: publishing does, while another program has iptables' lock.
func (d *Driver) PortProblems() []string {
	return d.publisher.PortProblems()
}

// Join implements NetworkDriver.Join: the container's interface is made, and is
// in the switch with its flows in place on return.
func (d *Driver) Join(ctx context.Context, r *network.JoinRequest) (*network.JoinResponse, error) {
	return d.endpoints.Join(ctx, r)
}

// Leave implements NetworkDriver.Leave. The pair goes with its host end, out of
// the container too; an endpoint that is gone is no error.
func (d *Driver) Leave(ctx context.Context, r *network.LeaveRequest) (*Empty, error) {
	return d.endpoints.Leave(ctx, r)
}

// Sandbox is the file of the network namespace that an endpoint of this host is in; "": it is in none.
func (d *Driver) Sandbox(endpointID string) string {
	if d == nil {
		return ""
	}
	return d.endpoints.Sandbox(endpointID)
}

// Reannounce announces the network of this host again that has the subnet p. It is no error if
// there is none.
func (d *Driver) Reannounce(p netip.Prefix) error {
	return d.endpoints.Reannounce(p)
}

// Unlabelled returns what there is of these. It waits for nothing.
func (d *Driver) Unlabelled() []Unlabelled {
	return d.labels.Unlabelled()
}

// Unlimited names, for people, the containers that are not kept to their limits, and why. It waits
// for nothing.
func (d *Driver) Unlimited() []string {
	return d.core.Unlimited()
}

// CreateNetwork implements NetworkDriver.CreateNetwork. If the network is known
// in the cluster, by -o name= or by its subnet, it takes that one's VNID;
// otherwise it gets one of its own, and is provisional until its name is known.
// Docker does not call DeleteNetwork after an error: nothing is left then.
func (d *Driver) CreateNetwork(ctx context.Context, r *network.CreateNetworkRequest) (*Empty, error) {
	return d.networks.CreateNetwork(ctx, r)
}

// DeleteNetwork implements NetworkDriver.DeleteNetwork. Docker forgets the
// network whatever is returned: one whose end cannot be stored here, as on a full disk, is
// collected when it is missing in Docker's lists. If the user asked for it, the network is to go on all hosts, as
// soon as none has containers on it; not so if this agent did, or if Docker could not store what
// was to be this host's part of a network that the cluster has.
func (d *Driver) DeleteNetwork(ctx context.Context, r *network.DeleteNetworkRequest) (*Empty, error) {
	return d.endpoints.DeleteNetwork(ctx, r)
}

// Here returns the names of the cluster's networks that this host's Docker has, as the cluster does.
func (d *Driver) Here() map[string]bool {
	if d == nil {
		return nil
	}
	return d.mirror.Here()
}

// Outdated returns the networks of this host that are from before they were made anew. It
// waits for nothing.
func (d *Driver) Outdated() []Outdated {
	return d.mirror.Outdated()
}

// ProgramExternalConnectivity implements the call by which Docker hands over -p, for the
// endpoint that has the container's default route. The ports are the container's on
// return; a port that is taken is an error that says by whom.
func (d *Driver) ProgramExternalConnectivity(ctx context.Context, r *network.ProgramExternalConnectivityRequest) (*Empty, error) {
	return d.publisher.ProgramExternalConnectivity(ctx, r)
}

// RevokeExternalConnectivity implements the call that comes before Leave, or when
// another network becomes the one of the default route.
func (d *Driver) RevokeExternalConnectivity(ctx context.Context, r *network.RevokeExternalConnectivityRequest) (*Empty, error) {
	return d.publisher.RevokeExternalConnectivity(ctx, r)
}

// Published returns the ports of this host's endpoints by endpoint. They are the caller's.
func (d *Driver) Published() map[string][]ports.Binding {
	if d == nil {
		return nil
	}
	return d.publisher.Published()
}

// Look makes the watcher look soon: what this host can take may have changed.
func (d *Driver) Look() {
	if d == nil {
		return
	}
	d.mirror.Look()
}

// Unstarted returns the containers of this host that the agent tries to start. It waits for nothing.
func (d *Driver) Unstarted() []Unstarted {
	return d.mirror.Unstarted()
}

// Orphans returns what this driver's networks in Docker have from before this host joined
// the cluster as a new one. It waits for nothing.
func (d *Driver) Orphans() []Orphan {
	return d.mirror.Orphans()
}

// Unlinked returns those of this host. Docker is asked only if there may be one; while it does
// not say who they are, none is returned.
func (d *Driver) Unlinked(ctx context.Context) (list []Unlinked) {
	return d.mirror.Unlinked(ctx)
}

// Watch keeps Docker's networks and the cluster's the same until ctx ends, then
// returns nil. Failures are logged and tried again: Docker may be down for as
// long as it likes. It first puts the running containers back into the switch, and starts
// those that Docker failed to start while there was no agent.
func (d *Driver) Watch(ctx context.Context) error {
	return d.mirror.Watch(ctx)
}

// Withdraw removes this driver's networks from the host's Docker while the cluster
// keeps them: the host is about to leave. Those with containers attached stay, and
// are returned by name. The watcher makes and removes nothing from then on.
func (d *Driver) Withdraw(ctx context.Context) (kept []string, err error) {
	return d.applier.Withdraw(ctx)
}
