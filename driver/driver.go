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
	"sync"
	"sync/atomic"
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
	// Former says that this host was another one of the same cluster before it was forgotten:
	// networks in Docker that this agent does not know are that one's.
	Former bool
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
	Now    func() time.Time
	Log    *slog.Logger
}

// Driver answers the NetworkDriver calls. It is safe for concurrent use.
type Driver struct {
	cfg     Config
	replica Replica
	alloc   *ipam.Allocator
	overlay Overlay
	links   Links
	ports   Ports
	names   Resolver
	docker  *docker.Client
	wake    chan struct{} // capacity 1: something for the watcher to look at

	inspector *inspector

	// The watcher's own.
	missing map[string]time.Time  // view.missing of the last look
	strange map[string]time.Time  // view.strange of the last look
	refused map[string]refusal    // networks that cannot be adopted, by Docker's ID
	name    string                // of this managed plugin, "" until Docker has told
	remade  map[string]string     // view.remade
	again   bool                  // something was put off: look again soon
	routed  map[string][]link.Via // see followSubnets, by sandbox
	// Since when changes in Docker are wanted, by ID or name, at the last look and at this one.
	waited, waiting map[string]time.Time

	looking   sync.Mutex // held during a look; covers withdrawn
	withdrawn bool       // the host is leaving: the watcher rests

	// For people, who are not to wait for Docker, the disk or iptables.
	strangers    atomic.Pointer[[]Stranger]   // for Strangers; the watcher's
	portProblems atomic.Pointer[[]string]     // for PortProblems; publishing covers its writers
	unstarted    atomic.Pointer[[]Unstarted]  // for Unstarted; that of revive
	outdated     atomic.Pointer[[]Outdated]   // for Outdated; the watcher's
	borrowers    atomic.Pointer[[]Borrower]   // for Borrowers; the watcher's
	untold       atomic.Pointer[[]Untold]     // for Untold; the watcher's
	unlabelled   atomic.Pointer[[]Unlabelled] // for Unlabelled; the watcher's

	hears atomic.Bool // Docker tells us its events: it answers

	taking     sync.Mutex               // held while a former network is taken up; taken before mu
	publishing sync.Mutex               // held while published ports change; taken before mu
	undeclared bool                     // ports did not get as far as to the packets
	unheld     map[ports.Binding]string // what somebody else has besides, and who
	slow       map[string]bool          // true: Docker had this endpoint when last asked, whose container is yet to start

	mu    sync.Mutex // covers local, ours, told, unstored, what follows it, and the records that go with them
	local *local
	ours  ours
	told  map[string][]link.Via // routes in replies to Join, by endpoint, until the watcher has seen them
	// unstored are networks, by Docker's ID, that Docker has yet to list: it may fail to store them,
	// and then removes them. true: the cluster had such a network before.
	unstored map[string]bool
	// removed are networks, by Docker's ID, whose end Docker has called for and which it lists.
	removed      map[string]bool
	userRemoved  map[string]time.Time // when a user removed a network here, by name: see justRemoved
	deleteLost   time.Time            // view.deleteLost
	dockerBegan  time.Time            // when Docker was last started
	removeFailed time.Time            // view.removeFailed
}

// ours are the changes that the watcher is just making in Docker, so that the
// calls that come of them are not taken for the user's.
type ours struct {
	creating map[netip.Prefix]*creation // by each of its subnets
	removing map[string]bool            // by Docker's ID
}

// creation is a network of the cluster on its way into this host's Docker.
type creation struct {
	docker.Network
	// alone says that it is made only as long as no client comes to Docker's API.
	alone bool
	// off says that it is not made now, since it has left the cluster meanwhile, or since
	// another one is being made on this host, which may be the same, or for alone.
	off bool
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
	driver := &Driver{
		cfg: cfg, replica: r, alloc: alloc, overlay: o, links: l, ports: p, names: names, docker: d,
		wake: make(chan struct{}, 1), local: loc,
		ours:   ours{creating: map[netip.Prefix]*creation{}, removing: map[string]bool{}},
		routed: map[string][]link.Via{}, told: map[string][]link.Via{}, unstored: map[string]bool{},
		removed: map[string]bool{}, remade: map[string]string{}, userRemoved: map[string]time.Time{},
	}
	driver.inspector = newInspector(d, driver.poke)
	driver.undeclared = true
	if err := driver.lookAtPorts(context.Background()); err != nil {
		return nil, fmt.Errorf("driver: %w", err)
	}
	return driver, nil
}

// poke makes the watcher look soon. It never blocks.
func (d *Driver) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}
