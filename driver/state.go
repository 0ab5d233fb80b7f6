package driver

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/driver/ports"
	"github.com/grapevine-net/grapevine/host/store"
)

// provisional begins the names of networks whose own is not known yet.
const provisional = cluster.ProvisionalPrefix

// localNetwork is a Docker network of ours on this host.
type localNetwork struct {
	ID string // Docker's, 64 hexadecimal digits
	// Name is that of the cluster's network it is part of: "provisional/" + ID
	// until it is known.
	Name string
	// Learnt says that Name is certain, and all else known that Docker lists. It is not
	// while it was only concluded from the subnet.
	Learnt   bool
	Prefixes []netip.Prefix
	Gateways []netip.Addr // of Prefixes, one each
	// Subnets are the records of Prefixes as they were announced: what else there is to say of
	// them. Networks of older agents have none.
	Subnets  []cluster.Subnet `json:",omitempty"`
	Internal bool
	// Attachable is cluster.Network's.
	Attachable bool `json:",omitempty"`
	Options    map[string]string
	// VNID, MTU and Labels as last seen, to announce the network again.
	VNID   uint32
	MTU    int
	Labels map[string]string
	// Made is cluster.Network's of when this was last like the cluster's (see outdated.go).
	Made string
	// Automatic says that nobody chose Prefixes: other hosts' of the same network are as good.
	Automatic bool
	// Store is which of Docker's stores listed it: see view.store. "" if none did, or if the agent is about
	// to remove it.
	Store string `json:",omitempty"`
	// Replica says that the agent made it in Docker, not a user.
	Replica bool
	// Conflict says why the network cannot be used; "" if it can.
	Conflict string
	Created  time.Time
}

// localEndpoint is an endpoint of ours on this host.
type localEndpoint struct {
	ID      string
	Network string       // localNetwork.ID
	Prefix  netip.Prefix // the IPv4 subnet and address; invalid: none
	Addr    netip.Addr
	Prefix6 netip.Prefix // and IPv6's
	Addr6   netip.Addr
	// Besides are the addresses that its user has declared: see addresses.go.
	Besides []netip.Addr
	MAC     string
	Joined  bool
	// Sandbox is libnetwork's key of the container's network namespace, a path, while
	// Joined; "" if Docker told none.
	Sandbox string
	// Limits are its own.
	cluster.Limits
	// Ports of the host that lead to it.
	Ports   []ports.Binding
	Created time.Time
}

// all are the endpoint's addresses: Docker's, and those besides.
func (e localEndpoint) all() []netip.Addr { return append(e.addrs(), e.Besides...) }

// addrs are the endpoint's addresses that Docker gave it, one of a family at most.
func (e localEndpoint) addrs() (out []netip.Addr) {
	for _, a := range []netip.Addr{e.Addr, e.Addr6} {
		if a.IsValid() {
			out = append(out, a)
		}
	}
	return out
}

var (
	networkBucket  = store.NewBucket[localNetwork]("driver/networks")
	carriedBucket  = store.NewBucket[localNetwork]("driver/former") // see carried.go
	endpointBucket = store.NewBucket[localEndpoint]("driver/endpoints")
)

// local is what Docker has of ours on this host, in memory and on disk. The
// methods that change it return when that is durable; d.mu is held for all.
type local struct {
	db        store.File
	networks  map[string]localNetwork
	carried   map[string]localNetwork // of the host that this one was: see carried.go
	endpoints map[string]localEndpoint
	earlier   map[string]bool // networks and endpoints that were on the disk at the start: view.earlier
}

func openLocal(db store.File, now time.Time) (*local, error) {
	l := &local{db: db, networks: map[string]localNetwork{}, carried: map[string]localNetwork{}, endpoints: map[string]localEndpoint{}, earlier: map[string]bool{}}
	err := db.View(func(tx *store.Tx) error {
		if err := carriedBucket.ForEach(tx, func(id string, n localNetwork) error { l.carried[id] = n; return nil }); err != nil {
			return err
		}
		err := networkBucket.ForEach(tx, func(id string, n localNetwork) error {
			if len(n.Gateways) != len(n.Prefixes) {
				return fmt.Errorf("network %.12s has %d subnets and %d gateways on the disk", id, len(n.Prefixes), len(n.Gateways))
			}
			n.Created = reckoned(n.Created, now)
			l.networks[id], l.earlier[id] = n, true
			return nil
		})
		if err != nil {
			return err
		}
		return endpointBucket.ForEach(tx, func(id string, e localEndpoint) error {
			if err := checkEndpointID(e.ID); err != nil {
				return err
			}
			e.Created = reckoned(e.Created, now)
			l.endpoints[id], l.earlier[id] = e, true
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read the networks and endpoints of this host, whose state is damaged or of another version: %w", err)
	}
	return l, nil
}

// reckoned is a time from the disk by the clock as it is now, which may have been set back since
// and may be again: nothing comes from the future, and what the time is compared with from now
// on has a monotonic reading, as it has itself.
func reckoned(then, now time.Time) time.Time { return now.Add(-max(0, now.Sub(then))) }

func (l *local) setNetwork(n localNetwork) error {
	if err := l.db.Update(func(tx *store.Tx) error { return networkBucket.Put(tx, n.ID, n) }); err != nil {
		return fmt.Errorf("save network %.12s: %w", n.ID, err)
	}
	l.networks[n.ID] = n
	return nil
}

func (l *local) dropNetwork(id string) error {
	if err := l.db.Update(func(tx *store.Tx) error { return networkBucket.Delete(tx, id) }); err != nil {
		return fmt.Errorf("save the end of network %.12s: %w", id, err)
	}
	delete(l.networks, id)
	return nil
}

func (l *local) setEndpoint(e localEndpoint) error {
	if err := l.db.Update(func(tx *store.Tx) error { return endpointBucket.Put(tx, e.ID, e) }); err != nil {
		return fmt.Errorf("save endpoint %.12s: %w", e.ID, err)
	}
	l.endpoints[e.ID] = e
	return nil
}

func (l *local) dropEndpoint(id string) error {
	if err := l.db.Update(func(tx *store.Tx) error { return endpointBucket.Delete(tx, id) }); err != nil {
		return fmt.Errorf("save the end of endpoint %.12s: %w", id, err)
	}
	delete(l.endpoints, id)
	return nil
}

// used reports whether a network has endpoints on this host.
func (l *local) used(network string) bool {
	for _, e := range l.endpoints {
		if e.Network == network {
			return true
		}
	}
	return false
}

// usedName reports whether a network of the cluster has endpoints on this host.
func (l *local) usedName(name string) bool {
	for id, n := range l.networks {
		if n.Name == name && l.used(id) {
			return true
		}
	}
	return false
}

// named reports whether a Docker network other than id is part of the same one.
func (l *local) named(name, id string) bool {
	for other, n := range l.networks {
		if n.Name == name && other != id {
			return true
		}
	}
	return false
}

// subnetOf returns the prefix and gateway of a network that an address is in.
func (n localNetwork) subnetOf(a netip.Addr) (p netip.Prefix, gw netip.Addr, ok bool) {
	for i, p := range n.Prefixes {
		if p.Contains(a) {
			return p, n.Gateways[i], true
		}
	}
	return p, gw, false
}
