package names

import (
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/grapevine-net/grapevine/cluster"
)

// Index is the names of one moment, in a form that is quick to ask. It follows
// the cluster by Advance, at a cost in proportion to what has changed. Any number
// of goroutines may ask while one advances it. The zero value is not ready; use New.
//
// With 100,000 endpoints of four names each, in networks of a hundred, it takes about 50 MB.
type Index struct {
	mu        sync.RWMutex
	seen      cluster.Digest
	endpoints map[string]*endpoint
	addrs     multi[netip.Addr]
	sandboxes multi[sandbox]
	networks  map[string]*network
	subnets   map[string]cluster.Subnet // by their keys
	gateways  map[netip.Addr]int        // subnets that have it
	spread    int                       // names that endpoints of several hosts have
	// unserved: names of services are those of their replicas alone.
	unserved bool
}

// sandbox is a container on its host. One that is restored elsewhere with the
// same ID is another one.
type sandbox struct {
	container string
	host      cluster.NodeID
}

type network struct {
	name      string // as in records
	lower     string
	names     multi[string] // by name in lower case
	endpoints int
	prefixes  []netip.Prefix
	// known: there is a record of the network itself.
	known, internal bool
	services        map[string]cluster.Service // by name in lower case
}

// New returns an empty Index.
func New() *Index {
	return &Index{
		endpoints: map[string]*endpoint{}, addrs: multi[netip.Addr]{}, sandboxes: multi[sandbox]{},
		networks: map[string]*network{}, subnets: map[string]cluster.Subnet{}, gateways: map[netip.Addr]int{},
	}
}

// Unserved has the index know no addresses of services: where a container's connections to them are led nowhere, their
// names are their replicas'. It is called before Advance.
func (x *Index) Unserved() { x.unserved = true }

// Advance brings the index up to a snapshot, which must not be older than the one
// before and of the same State. Only one goroutine may call it at a time. Those
// who ask meanwhile wait for one record at the most.
func (x *Index) Advance(s *cluster.Snapshot) {
	// What is new since the last snapshot are records above what was heard of then.
	for r := range s.Missing(x.seen) {
		x.apply(r)
	}
	x.seen = s.Digest()
}

// Len returns the number of endpoints.
func (x *Index) Len() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.endpoints)
}

// Spread reports whether endpoints of several hosts have a name in common.
func (x *Index) Spread() bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.spread > 0
}

func (x *Index) apply(r cluster.Record) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch r.Key.Kind {
	case cluster.KindEndpoint:
		x.putEndpoint(r)
	case cluster.KindSubnet:
		x.putSubnet(r)
	case cluster.KindService:
		x.putService(r)
	case cluster.KindNetwork:
		body, live := r.Body.(cluster.Network)
		n := x.network(r.Key.ID)
		n.known, n.internal = live, live && body.Internal
		x.drop(n)
	}
}

func (x *Index) putEndpoint(r cluster.Record) {
	old := x.endpoints[r.Key.ID]
	if old != nil && old.version == r.Version {
		return // yielded again, because an older write of its host is still missing
	}
	if old != nil {
		x.unlink(old)
	}
	if body, live := r.Body.(cluster.Endpoint); live {
		x.link(newEndpoint(body, r.Version, x.network(body.Network)))
	}
	if old != nil {
		x.drop(old.network)
	}
}

func (x *Index) link(e *endpoint) {
	x.endpoints[e.id] = e
	e.network.endpoints++
	for _, a := range e.addrs {
		x.addrs.add(a, e)
	}
	if e.container != "" {
		x.sandboxes.add(sandbox{e.container, e.host}, e)
	}
	for _, n := range e.names {
		x.spread -= e.network.names[n].spread()
		e.network.names.add(n, e)
		x.spread += e.network.names[n].spread()
	}
}

func (x *Index) unlink(e *endpoint) {
	delete(x.endpoints, e.id)
	e.network.endpoints--
	for _, a := range e.addrs {
		x.addrs.remove(a, e)
	}
	if e.container != "" {
		x.sandboxes.remove(sandbox{e.container, e.host}, e)
	}
	for _, n := range e.names {
		x.spread -= e.network.names[n].spread()
		e.network.names.remove(n, e)
		x.spread += e.network.names[n].spread()
	}
}

func (x *Index) putSubnet(r cluster.Record) {
	if old, ok := x.subnets[r.Key.ID]; ok {
		delete(x.subnets, r.Key.ID)
		x.countGateway(old.Gateway, -1)
		n := x.network(old.Network)
		n.prefixes = slices.DeleteFunc(n.prefixes, func(p netip.Prefix) bool { return p == old.Prefix })
		x.drop(n)
	}
	if body, live := r.Body.(cluster.Subnet); live {
		n := x.network(body.Network)
		n.prefixes = append(n.prefixes, body.Prefix)
		x.subnets[r.Key.ID] = body
		x.countGateway(body.Gateway, 1)
	}
}

func (x *Index) putService(r cluster.Record) {
	if x.unserved {
		return
	}
	on, name, _ := strings.Cut(r.Key.ID, "/")
	n := x.network(on)
	if body, live := r.Body.(cluster.Service); live {
		if n.services == nil {
			n.services = map[string]cluster.Service{}
		}
		n.services[Canonical(name)] = body
	} else {
		delete(n.services, Canonical(name))
	}
	x.drop(n)
}

// addresses are those of a service that are of the network as it is now.
func (n *network) addresses(s cluster.Service) (addrs []netip.Addr) {
	for _, a := range s.Addrs {
		if slices.ContainsFunc(n.prefixes, func(p netip.Prefix) bool { return p.Contains(a) }) {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

func (x *Index) countGateway(a netip.Addr, by int) {
	if !a.IsValid() {
		return
	}
	if x.gateways[a] += by; x.gateways[a] == 0 {
		delete(x.gateways, a)
	}
}

// network returns the network of the name, made if it is new: the records of a
// network, its subnets and its endpoints come in any order.
func (x *Index) network(name string) *network {
	n := x.networks[name]
	if n == nil {
		n = &network{name: name, lower: strings.ToLower(name), names: multi[string]{}}
		x.networks[name] = n
	}
	return n
}

// drop forgets a network of which nothing is left.
func (x *Index) drop(n *network) {
	if !n.known && n.endpoints == 0 && len(n.prefixes) == 0 && len(n.services) == 0 {
		delete(x.networks, n.name)
	}
}
