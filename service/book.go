package service

import (
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"github.com/grapevine-net/grapevine/cluster"
)

// Hosts says how a host stands; nil: all answer.
type Hosts func(cluster.NodeID) cluster.Standing

// Book is the services of one moment, and who is behind them. It follows the cluster by Advance, and the hosts by
// Look, at a cost in proportion to what has changed. It is for one goroutine at a time. Use NewBook.
type Book struct {
	begun     bool // there was a service
	seen      cluster.Digest
	networks  map[string]*network
	endpoints map[string]*replica
	subnets   map[string]cluster.Subnet
	stand     map[cluster.NodeID]cluster.Standing // of hosts that have endpoints on networks with services
	log       changes
}

type network struct {
	services map[string]cluster.Service
	replicas map[string]*replica
	hosts    map[cluster.NodeID]int // how many of the replicas each has
	groups   map[string]*group      // by the names that services select, folded
	prefixes []netip.Prefix
	made     fronts
}

// group is what services select that select by one name.
type group struct {
	services map[string]bool
	replicas map[string]*replica
}

// replica is an endpoint that may be one. The body is the record's, of which there is no second one in memory.
type replica struct {
	network string
	host    cluster.NodeID
	body    cluster.Body
}

func (r *replica) endpoint() cluster.Endpoint {
	e, _ := r.body.(cluster.Endpoint)
	return e
}

// NewBook returns a Book of a cluster without services.
func NewBook() *Book {
	return &Book{networks: map[string]*network{}, endpoints: map[string]*replica{}, subnets: map[string]cluster.Subnet{}, stand: map[cluster.NodeID]cluster.Standing{}}
}

// Advance brings the book up to a snapshot, which must not be older than the one before and of the same State. Until
// there is a first service it costs nothing.
func (b *Book) Advance(s *cluster.Snapshot) {
	for range cluster.All[cluster.Service](s) {
		b.begun = true
		break
	}
	if !b.begun {
		return
	}
	var endpoints []cluster.Record // last: each finds the services that have it, and no service looks through all of them
	for r := range s.Missing(b.seen) {
		switch r.Key.Kind {
		case cluster.KindEndpoint:
			endpoints = append(endpoints, r)
		case cluster.KindSubnet:
			b.putSubnet(r)
		case cluster.KindService:
			b.putService(r)
		}
	}
	for _, r := range endpoints {
		b.putEndpoint(r)
	}
	b.seen = s.Digest()
}

// Services returns how many there are.
func (b *Book) Services() (n int) {
	for _, net := range b.networks {
		n += len(net.services)
	}
	return n
}

func (b *Book) network(name string) *network {
	n := b.networks[name]
	if n == nil {
		n = &network{services: map[string]cluster.Service{}, replicas: map[string]*replica{}, hosts: map[cluster.NodeID]int{}, groups: map[string]*group{}, made: newFronts()}
		b.networks[name] = n
	}
	return n
}

// tidy forgets a network of which nothing is left.
func (b *Book) tidy(name string) {
	if n := b.networks[name]; len(n.services) == 0 && len(n.replicas) == 0 && len(n.prefixes) == 0 {
		b.fronts(name)
		delete(b.networks, name)
	}
}

func (b *Book) putEndpoint(r cluster.Record) {
	if old := b.endpoints[r.Key.ID]; old != nil {
		delete(b.endpoints, r.Key.ID)
		n := b.networks[old.network]
		delete(n.replicas, r.Key.ID)
		if n.hosts[old.host]--; n.hosts[old.host] == 0 {
			delete(n.hosts, old.host)
		}
		n.eachGroup(old, func(g *group) { delete(g.replicas, r.Key.ID) })
		defer b.tidy(old.network)
	}
	e, live := r.Body.(cluster.Endpoint)
	if !live {
		return
	}
	p := &replica{network: e.Network, host: e.Host, body: r.Body}
	b.endpoints[r.Key.ID] = p
	n := b.network(e.Network)
	n.replicas[r.Key.ID] = p
	n.hosts[p.host]++
	n.eachGroup(p, func(g *group) { g.replicas[r.Key.ID] = p })
}

// eachGroup calls change with the groups that a replica is in, or is to be in, and has the services anew that may have it.
func (n *network) eachGroup(r *replica, change func(*group)) {
	e := r.endpoint()
	for _, name := range slices.Concat([]string{"", e.Name, e.Labels[swarmService]}, e.Aliases, e.More) {
		if g := n.groups[fold(name)]; g != nil {
			change(g)
			for s := range g.services {
				n.made.stale[s] = true
			}
		}
	}
}

// fold returns the same for all names that are equal but for the case of letters, as strings.EqualFold has it.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-' || r == '_' || r == '.' {
			return r
		}
		least := r
		for o := unicode.SimpleFold(r); o != r; o = unicode.SimpleFold(o) {
			least = min(least, o)
		}
		if 'A' <= least && least <= 'Z' {
			least += 'a' - 'A'
		}
		return least
	}, name)
}

func (b *Book) putSubnet(r cluster.Record) {
	if old, ok := b.subnets[r.Key.ID]; ok {
		delete(b.subnets, r.Key.ID)
		n := b.networks[old.Network]
		n.prefixes = slices.DeleteFunc(n.prefixes, func(p netip.Prefix) bool { return p == old.Prefix })
		n.all()
		defer b.tidy(old.Network)
	}
	if s, live := r.Body.(cluster.Subnet); live {
		b.subnets[r.Key.ID] = s
		n := b.network(s.Network)
		n.prefixes = append(n.prefixes, s.Prefix)
		n.all()
	}
}

// all has all services anew.
func (n *network) all() {
	for name := range n.services {
		n.made.stale[name] = true
	}
}

func (b *Book) putService(r cluster.Record) {
	name, service, _ := strings.Cut(r.Key.ID, "/")
	n := b.network(name)
	if old, was := n.services[service]; was {
		delete(n.services, service)
		g := n.groups[fold(old.Select)]
		if delete(g.services, service); len(g.services) == 0 {
			delete(n.groups, fold(old.Select))
		}
	}
	n.made.stale[service] = true
	if s, live := r.Body.(cluster.Service); live {
		n.services[service] = s
		g := n.groups[fold(s.Select)]
		if g == nil {
			g = &group{services: map[string]bool{}, replicas: map[string]*replica{}}
			for id, r := range n.replicas {
				if selects(s.Select, r.endpoint()) {
					g.replicas[id] = r
				}
			}
			n.groups[fold(s.Select)] = g
		}
		g.services[service] = true
	}
	b.tidy(name)
}

// Look asks how the hosts stand that have endpoints on networks with services, and reports whether that differs from
// the last time.
func (b *Book) Look(hosts Hosts) (differs bool) {
	now := map[cluster.NodeID]cluster.Standing{}
	for _, n := range b.networks {
		if len(n.services) == 0 {
			continue
		}
		other := false
		for host := range n.hosts {
			if _, known := now[host]; !known && hosts != nil {
				now[host] = hosts(host)
			}
			other = other || b.stand[host] != now[host]
		}
		if other {
			n.all()
			differs = true
		}
	}
	b.stand = now
	return differs
}

// Selects reports whether a service is to have an endpoint behind it, of those on its network.
func Selects(s cluster.Service, e cluster.Endpoint) bool {
	if !selects(s.Select, e) {
		return false
	}
	if len(s.Labels) > 0 && !e.Labelled {
		return false
	}
	for k, v := range s.Labels {
		if has, labelled := e.Labels[k]; !labelled || has != v {
			return false
		}
	}
	return true
}

// swarmService is Docker's label of a task of Swarm's, whose service is its name as one of Compose's is: but no alias, and Docker tells it as none.
const swarmService = "com.docker.swarm.service.name"

// selects reports whether an endpoint has the name that a service selects, if it selects any.
func selects(name string, e cluster.Endpoint) bool {
	is := func(n string) bool { return strings.EqualFold(n, name) }
	return name == "" || is(e.Name) || is(e.Labels[swarmService]) || slices.ContainsFunc(e.Aliases, is) || slices.ContainsFunc(e.More, is)
}

// Replica is a container behind a service.
type Replica struct {
	cluster.Endpoint
	Standing cluster.Standing // of its host
	// In says that new connections are led to it.
	In bool
}

// replicas returns the containers behind a service, by ID.
func (b *Book) replicas(n *network, s cluster.Service) (list []Replica) {
	for _, r := range n.groups[fold(s.Select)].replicas {
		if e := r.endpoint(); Selects(s, e) {
			list = append(list, Replica{Endpoint: e, Standing: b.stand[r.host]})
		}
	}
	return Choose(list)
}

// Choose says of the replicas of one service which get new connections, and puts them in order by ID: those that are
// ready, on hosts that answer; if there are none, those on hosts in doubt; if nobody is ready, the others; and last those
// on hosts of which no agent answers, since containers outlive agents: they may serve, and nobody else does.
func Choose(list []Replica) []Replica {
	best := 0
	grade := func(r Replica) int {
		switch {
		case r.Standing == cluster.Gone:
			return 1
		case r.Unready:
			return 2
		case r.Standing == cluster.Doubtful:
			return 3
		}
		return 4
	}
	for _, r := range list {
		best = max(best, grade(r))
	}
	for i, r := range list {
		list[i].In = best > 0 && grade(r) == best
	}
	slices.SortFunc(list, func(a, b Replica) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// Listed is a service, and what is known of it.
type Listed struct {
	cluster.Service
	// Void says that it has no address on its network any more.
	Void     bool
	Replicas []Replica
}

// List returns all services by network and name.
func (b *Book) List() (list []Listed) {
	for _, n := range b.networks {
		for _, s := range n.services {
			list = append(list, Listed{Service: s, Void: len(n.addrs(s)) == 0, Replicas: b.replicas(n, s)})
		}
	}
	slices.SortFunc(list, func(a, b Listed) int { return strings.Compare(a.Key().ID, b.Key().ID) })
	return list
}

// addrs are the addresses of a service on its network as that is now.
func (n *network) addrs(s cluster.Service) (addrs []netip.Addr) {
	for _, a := range s.Addrs {
		if slices.ContainsFunc(n.prefixes, func(p netip.Prefix) bool { return p.Contains(a) }) {
			addrs = append(addrs, a)
		}
	}
	return addrs
}
