package driver

import (
	"context"
	"errors"

	"github.com/docker/go-plugins-helpers/network"

	"github.com/grapevine-net/grapevine/host/plugin"
)

// Empty is the reply of calls that return nothing.
type Empty struct{}

// Capabilities is the reply to GetCapabilities; go-plugins-helpers lacks the
// last field.
type Capabilities struct {
	Scope             string
	ConnectivityScope string
	// GwAllocChecker makes Docker, from 28 on, call GwAllocCheck before it asks for
	// pools: bad options are refused before anything is allocated.
	GwAllocChecker bool
}

// GwAllocCheckRequest asks, before anything else of a network's creation,
// whether it needs a gateway address.
type GwAllocCheckRequest struct {
	Options map[string]any
}

// GwAllocCheckResponse says for which families Docker is not to ask for a gateway's address.
type GwAllocCheckResponse struct {
	SkipIPv4, SkipIPv6 bool
}

// Register adds the driver's methods to s.
func (d *Driver) Register(s *plugin.Server) {
	s.OnLost(d.callLost)
	plugin.HandleNoBody(s, plugin.Network, "GetCapabilities", d.getCapabilities)
	plugin.Handle(s, plugin.Network, "GwAllocCheck", d.GwAllocCheck)
	plugin.Handle(s, plugin.Network, "AllocateNetwork", d.AllocateNetwork)
	plugin.Handle(s, plugin.Network, "FreeNetwork", d.FreeNetwork)
	plugin.Handle(s, plugin.Network, "CreateNetwork", d.CreateNetwork)
	plugin.Handle(s, plugin.Network, "DeleteNetwork", d.DeleteNetwork)
	plugin.Handle(s, plugin.Network, "CreateEndpoint", d.CreateEndpoint)
	plugin.Handle(s, plugin.Network, "EndpointOperInfo", d.EndpointInfo)
	plugin.Handle(s, plugin.Network, "DeleteEndpoint", d.DeleteEndpoint)
	plugin.Handle(s, plugin.Network, "Join", d.Join)
	plugin.Handle(s, plugin.Network, "Leave", d.Leave)
	plugin.Handle(s, plugin.Network, "ProgramExternalConnectivity", d.ProgramExternalConnectivity)
	plugin.Handle(s, plugin.Network, "RevokeExternalConnectivity", d.RevokeExternalConnectivity)
	plugin.Handle(s, plugin.Network, "DiscoverNew", nothing[network.DiscoveryNotification])
	plugin.Handle(s, plugin.Network, "DiscoverDelete", nothing[network.DiscoveryNotification])
}

// callLost is told of a call of which only its method came. Docker goes on when an endpoint
// could not be deleted here: it is one that will be missing from its lists.
func (d *Driver) callLost(method string) {
	if method != string(plugin.Network)+".DeleteEndpoint" {
		return
	}
	d.core.mu.Lock()
	d.core.deleteLost = d.core.cfg.Now()
	d.core.mu.Unlock()
	d.core.poke()
}

// nothing accepts a call that needs no action: those of Swarm managers, which a
// driver of local scope does not get.
func nothing[Req any](context.Context, *Req) (*Empty, error) { return &Empty{}, nil }

// getCapabilities is a Docker's first call: what the one before it had not stored is forgotten.
func (d *Driver) getCapabilities(ctx context.Context) (*Capabilities, error) {
	d.core.mu.Lock()
	d.core.dockerBegan = d.core.cfg.Now()
	d.core.mu.Unlock()
	d.core.poke()
	return GetCapabilities(ctx)
}

// GetCapabilities answers NetworkDriver.GetCapabilities, also where no Driver can run. The
// data scope is local, since global would hand the creation of networks to Swarm's managers.
func GetCapabilities(context.Context) (*Capabilities, error) {
	return &Capabilities{Scope: network.LocalScope, ConnectivityScope: network.GlobalScope, GwAllocChecker: true}, nil
}

// GwAllocCheck implements NetworkDriver.GwAllocCheck. Every network has its
// gateway address, internal ones too: it is reserved in all of the cluster, where
// the network may be extended.
func (d *Driver) GwAllocCheck(_ context.Context, r *GwAllocCheckRequest) (*GwAllocCheckResponse, error) {
	if _, err := parseOptions(r.Options); err != nil {
		return nil, err
	}
	return &GwAllocCheckResponse{}, nil
}

// errLocalScope answers what Swarm's managers ask of drivers of global scope alone.
var errLocalScope = errors.New("grapevine's networks are of local scope, which Swarm's managers do not allocate; make the network with --scope swarm --config-from")

// AllocateNetwork refuses NetworkDriver.AllocateNetwork.
func (d *Driver) AllocateNetwork(context.Context, *network.AllocateNetworkRequest) (*network.AllocateNetworkResponse, error) {
	return nil, errLocalScope
}

// FreeNetwork refuses NetworkDriver.FreeNetwork.
func (d *Driver) FreeNetwork(context.Context, *network.FreeNetworkRequest) (*Empty, error) {
	return nil, errLocalScope
}
