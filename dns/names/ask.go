package names

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/cluster"
)

// Limit is the most addresses that one answer has. Of a name with more, each
// answer has other ones, so that all get their share.
const Limit = 256

// Asker says who asks: by the address its question came from, or, where the
// question was taken inside its sandbox, by the IDs of its endpoints. A host that is on
// no network may ask about some: Networks says which, and is nil for all others.
type Asker struct {
	Addr      netip.Addr
	Endpoints []string
	Networks  func(network string) bool
}

// Hosts says how a host stands; nil: all answer.
type Hosts func(cluster.NodeID) cluster.Standing

func (h Hosts) standing(id cluster.NodeID) cluster.Standing {
	if h == nil {
		return cluster.Answers
	}
	return h(id)
}

// View is what an asker may know. A View is good for one question.
type View struct {
	x        *Index
	networks []*network // the one that the question came through first, then by name
	direct   bool       // names of services are those of their replicas
	told     bool       // the asker is a host's own program: names that have dots may be anybody's
}

// View returns what the asker may know; false if no container is known by that
// address or those endpoints, and so nothing is to be seen.
func (x *Index) View(a Asker) (View, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	v := View{x: x}
	if a.Networks != nil {
		v.told = true
		v.direct = true // no connection of its own is led to a service's replicas
		for _, n := range x.networks {
			if n.known && !strings.HasPrefix(n.name, provisional) && a.Networks(n.name) {
				v.add(n)
			}
		}
		slices.SortFunc(v.networks, func(a, b *network) int { return cmp.Compare(a.name, b.name) })
		return v, true
	}
	if s, ok := x.addrs[a.Addr.Unmap()]; ok {
		v.include(slices.MaxFunc(s.all(), byAge))
	}
	for _, id := range a.Endpoints {
		if e := x.endpoints[id]; e != nil {
			v.include(e)
		}
	}
	if len(v.networks) > 1 {
		slices.SortFunc(v.networks[1:], func(a, b *network) int { return cmp.Compare(a.name, b.name) })
	}
	return v, len(v.networks) > 0
}

// At returns the endpoint that has an address.
func (x *Index) At(a netip.Addr) (id string, ok bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s, ok := x.addrs[a.Unmap()]
	if !ok {
		return "", false
	}
	return slices.MaxFunc(s.all(), byAge).id, true
}

func byAge(a, b *endpoint) int {
	if a.newer(b) {
		return 1
	}
	return -1
}

// include adds the networks of the container whose endpoint e is.
func (v *View) include(e *endpoint) {
	v.add(e.network)
	v.direct = v.direct || e.client
	if e.container == "" {
		return // Docker has not yet told which container it is
	}
	s := v.x.sandboxes[sandbox{e.container, e.host}]
	for _, other := range s.all() {
		v.add(other.network)
	}
}

func (v *View) add(n *network) {
	if !slices.Contains(v.networks, n) {
		v.networks = append(v.networks, n)
	}
}

// External reports whether the asker is on any network that is not internal:
// whether its questions may leave the host.
func (v View) External() bool {
	v.x.mu.RLock()
	defer v.x.mu.RUnlock()
	return slices.ContainsFunc(v.networks, func(n *network) bool { return !n.internal })
}

// Networks returns the names of the networks in the view, in the order in which
// they are searched.
func (v View) Networks() []string {
	var names []string
	for _, n := range v.networks {
		names = append(names, n.name)
	}
	return names
}

// Lookup returns the addresses of a name, all of one network and of both families: at most
// Limit, beginning at the turn-th if there are more. False: the asker sees no such name.
// A service's name has the service's addresses, and tasks.SERVICE those of its replicas; a
// client is told the replicas by both. Endpoints on hosts that are gone do not exist. Those on
// hosts in doubt are left out if the name has others on that network.
//
// As in Docker a name is first looked for as it is on each network, then, if it
// has dots, as NAME.NETWORK, from the right: a.b.c is a.b on network c, then a on
// network b.c. The first network that has the name is the answer.
func (v View) Lookup(name string, turn int, hosts Hosts) ([]netip.Addr, bool) {
	name = Canonical(name)
	v.x.mu.RLock()
	defer v.x.mu.RUnlock()
	// Whoever starts a container may have it called github.com; other containers of its network believe that, as Docker has
	// it, and a host does not.
	for _, n := range v.networks {
		if v.told && strings.Contains(name, ".") {
			break
		}
		if addrs, ok := n.lookup(name, v.direct, turn, hosts); ok {
			return addrs, true
		}
	}
	for dot := strings.LastIndexByte(name, '.'); dot > 0; dot = strings.LastIndexByte(name[:dot], '.') {
		for _, n := range v.networks {
			if n.lower != name[dot+1:] {
				continue
			}
			if addrs, ok := n.lookup(name[:dot], v.direct, turn, hosts); ok {
				return addrs, true
			}
		}
	}
	return nil, false
}

// replicas begins the name of what is behind a service, as in Swarm.
const replicas = "tasks."

func (n *network) lookup(name string, direct bool, turn int, hosts Hosts) ([]netip.Addr, bool) {
	of, ok := strings.CutPrefix(name, replicas)
	if addrs := n.addresses(n.services[name]); len(addrs) > 0 {
		if !direct {
			return addrs, true
		}
		of, ok = name, true
	}
	if ok && n.services[of].Select != "" {
		if _, own := n.names[name]; !own {
			name = Canonical(n.services[of].Select)
		}
	}
	s := n.names[name]
	all := s.all()
	if addrs, ok := addresses(all, turn, hosts, cluster.Answers); ok {
		return addrs, true
	}
	return addresses(all, turn, hosts, cluster.Doubtful)
}

// addresses are those of the endpoints on hosts that stand so.
func addresses(all []*endpoint, turn int, hosts Hosts, want cluster.Standing) (addrs []netip.Addr, ok bool) {
	for i := range all {
		e := all[(turn%len(all)+i)%len(all)]
		if hosts.standing(e.host) != want {
			continue
		}
		ok = true
		for _, a := range e.addrs[:e.named] {
			if !slices.Contains(addrs, a) {
				addrs = append(addrs, a)
			}
		}
		if len(addrs) >= Limit {
			return addrs[:Limit], true
		}
	}
	return addrs, ok
}

// Reverse returns the name of an address, CONTAINER.NETWORK as in Docker. ours is
// false if the address is on none of the asker's networks: others may know it.
// If it is ours and the name is empty, nobody has the address or it has no name.
func (v View) Reverse(addr netip.Addr, hosts Hosts) (name string, ours bool) {
	v.x.mu.RLock()
	defer v.x.mu.RUnlock()
	s := v.x.addrs[addr]
	var newest *endpoint
	for _, e := range s.all() {
		seen := slices.Contains(v.networks, e.network) && hosts.standing(e.host) != cluster.Gone
		if seen && (newest == nil || e.newer(newest)) {
			newest = e
		}
	}
	if newest != nil {
		return newest.fullName(), true
	}
	for _, n := range v.networks {
		for _, s := range n.services {
			if slices.Contains(n.addresses(s), addr) {
				return s.Name + "." + s.Network, true
			}
		}
	}
	return "", slices.ContainsFunc(v.networks, func(n *network) bool {
		return slices.ContainsFunc(n.prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
	})
}

// provisional begins the name of a network whose name is not yet known.
const provisional = cluster.ProvisionalPrefix

func (e *endpoint) fullName() string {
	if e.label == "" || strings.HasPrefix(e.network.name, provisional) {
		return e.label
	}
	return e.label + "." + e.network.name
}

// Gateway reports whether an address is the gateway of any subnet of the cluster.
func (x *Index) Gateway(a netip.Addr) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.gateways[a] > 0
}
