// Package driver answers Docker's NetworkDriver calls (libnetwork/docs/remote.md)
// and keeps Docker's networks and the cluster's the same.
//
// Two halves: the calls, which write records, wire containers to the switch and
// never wait for the Docker API (it may be waiting for them); and the watcher
// (Watch), which learns names from the Docker API, makes and removes networks
// there, and collects what Docker forgot.
//
// A cluster network is its name. Docker does not tell the driver that, so a new
// network is provisional, with a VNID of its own, until the watcher has learnt
// its name; then its subnets and endpoints become the named network's.
package driver

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/driver/ports"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/ipam"
	"github.com/grapevine-net/grapevine/replica"
)

// Replica is the agent's copy of the cluster's state; *replica.Replica is one.
type Replica interface {
	Snapshot() *cluster.Snapshot
	Watch() <-chan struct{}
	Update(func(*replica.Tx) error) (rev uint64, err error)
}

// Overlay puts containers' interfaces into the switch; *overlay.Overlay is one.
// Both calls are idempotent; Attach returns when the port forwards.
type Overlay interface {
	Attach(ctx context.Context, endpointID, ifname string) error
	Detach(ctx context.Context, endpointID string) error
}

// Links makes and deletes veth pairs; package overlay/plane has the real ones. The calls are
// idempotent. Exists reports whether there is an interface of that name on the host.
// Routes makes these all that a sandbox (a file) has of our routes.
type Links interface {
	Veth(host, peer string, mac net.HardwareAddr, mtu int, alias string) error
	// SetMTU changes the MTU of a pair whose peer is in the sandbox with that key.
	SetMTU(host, sandbox string, mtu int) error
	// Limit has such a pair carry no more than that in each direction.
	Limit(host, sandbox string, limits link.Limits) error
	// CanLag returns an error if this host's kernel cannot delay or lose packets (link.CanLag).
	CanLag() error
	// Received is how many bytes the container has sent by such a pair.
	Received(host string) (bytes uint64, err error)
	Delete(host string) error
	Exists(name string) bool
	Routes(sandbox string, vias []link.Via) error
}

// Resolver answers names inside containers' network namespaces; *dns.Server is one.
// key is the file of the namespace, which may come later than the call. Both calls
// are idempotent and do not block.
type Resolver interface {
	Attach(endpointID, key string)
	Detach(endpointID string)
}

// Config of a Driver.
type Config struct {
	Self cluster.NodeID
	// Replicate lets the agent make and remove networks in this host's Docker.
	Replicate bool
	// DriverName is the name by which this host's Docker knows the driver, such as
	// "grapevine:latest"; "" to find it out.
	DriverName string
	// PluginID is the ID by which Docker knows this agent as a managed plugin, "" if
	// it is none: then Socket, the path of the plugin's socket, says its name.
	PluginID, Socket string
	// MTU of the underlay in bytes, where no Node record tells.
	MTU int
	// Grace is how long what Docker does not know is kept: longer than Docker takes
	// from the first call for a thing to listing it. 0: 30 seconds.
	Grace time.Duration
	// OpenPorts says where ports come from that users leave open (-p 80). nil: those
	// from which Linux takes the ports of outgoing connections.
	OpenPorts func() ports.Choice
	// Renewed says that this host was another one of the same cluster before it was forgotten:
	// networks in Docker that this agent does not know are that one's.
	Renewed bool
	// Settled says whether this host has heard all that the cluster knows, so that what it
	// has not heard of does not exist. nil: it has.
	Settled func() bool
	// Listed, if it is not nil, is told Docker's networks of all drivers whenever they are listed.
	Listed func([]docker.Network)
	// Networks, if set, is told at each look all networks that Docker has of other drivers, and
	// those of this one with a subnet that is another network's.
	Networks func(others, rivals []docker.Network)
	// Barred says why this host cannot take subnets; nil: it can take all.
	Barred func(subnets []netip.Prefix) map[netip.Prefix]error
	// Answered, if set, waits until names are answered in a sandbox that is there, for as long as ctx.
	Answered func(ctx context.Context, sandbox string)
	// CannotEncrypt is why this host has no part in encrypted networks; nil: it can have.
	CannotEncrypt error
	// Encap is how all networks are wrapped on their way to other hosts; "": in VXLAN.
	Encap string
	// Kept is what Docker keeps of containers on its disk; nil: that cannot be read.
	Kept *docker.Kept
	Now  func() time.Time
	Log  *slog.Logger
}

// Driver answers the NetworkDriver calls. It is safe for concurrent use. It is its rooms: each names those that
// it uses, and all have the core. A nil Driver is of a host without Docker: Here, Look, Published, Sandbox and SetLimits say that there is nothing.
type Driver struct {
	core      *core
	publisher *publisher
	labels    *labels
	networks  *networks
	endpoints *endpoints
	applier   *applier
	mirror    *mirror
}

// rooms are a Driver's, with that core.
func rooms(c *core) *Driver {
	publisher, labels, networks := &publisher{core: c}, &labels{core: c, kept: c.cfg.Kept}, &networks{core: c}
	endpoints := &endpoints{c, publisher, labels, networks}
	applier := &applier{core: c, networks: networks, endpoints: endpoints, remade: map[string]string{}}
	mirror := &mirror{core: c, publisher: publisher, labels: labels, networks: networks, endpoints: endpoints, applier: applier, routed: map[string][]link.Via{}, dockers: map[string][]link.Via{}}
	return &Driver{c, publisher, labels, networks, endpoints, applier, mirror}
}

// New returns a Driver with the networks and endpoints that db has. Of those that are
// still there, the published ports are held and declared on return.
func New(cfg Config, r Replica, alloc *ipam.Allocator, o Overlay, l Links, p Ports, names Resolver, d *docker.Client, db store.File) (*Driver, error) {
	if cfg.Grace == 0 {
		cfg.Grace = 30 * time.Second
	}
	if cfg.OpenPorts == nil {
		cfg.OpenPorts = func() ports.Choice { return ports.Choice{First: 32768, Last: 60999} }
	}
	loc, err := openLocal(db, cfg.Now())
	if err != nil {
		return nil, fmt.Errorf("driver: %w", err)
	}
	driver := rooms(&core{
		cfg: cfg, replica: r, alloc: alloc, overlay: o, links: l, ports: p, names: names, docker: d,
		wake: make(chan struct{}, 1), joined: make(chan struct{}, 1), local: loc,
		ours: ours{creating: map[netip.Prefix]*creation{}, removing: map[string]bool{}},
		told: map[string][]link.Via{}, unstored: map[string]bool{},
		removed: map[string]bool{}, userRemoved: map[string]time.Time{},
	})
	driver.core.inspector = newInspector(d, driver.core.poke)
	driver.publisher.undeclared = true
	if err := driver.publisher.lookAtPorts(context.Background()); err != nil {
		return nil, fmt.Errorf("driver: %w", err)
	}
	return driver, nil
}
