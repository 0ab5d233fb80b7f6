package overlay

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// topology is what a host's flows depend on beside its endpoints: networks, hosts, subnets
// and their ranges. Its parts are never changed once they are made.
type topology struct {
	*nets
	*hosts
	shares map[netip.Prefix][]share // of the subnets
	routes []pipeline.Route
}

// nets is what follows from the networks and subnets.
type nets struct {
	network  map[string]cluster.Network
	secret   []uint32         // the numbers of those that are encrypted
	left     map[string]error // networks that are left out, and why
	realm    map[string]pipeline.Realm
	subnet   []cluster.Subnet // the narrow ones first
	subnets  []pipeline.Subnet
	overlap  bool            // some subnets do
	shut     map[string]bool // networks that this host is not to reach
	problems []Problem
}

// hosts is what follows from the hosts.
type hosts struct {
	ids      []cluster.NodeID // in order
	vtep     map[cluster.NodeID]netip.Addr
	secure   map[cluster.NodeID]netip.Addr // what is of encrypted networks goes there, or nowhere
	vteps    []pipeline.VTEP
	addrs    map[cluster.NodeID][]netip.Addr // to speak to each other's containers from
	host     []netip.Addr                    // of them, this host's
	self     netip.Addr                      // this host's VTEP
	problems []Problem
}

// share is a part of a subnet, and whose it is.
type share struct {
	prefix netip.Prefix
	owner  cluster.NodeID
}

// isTopology reports whether a record belongs to the topology.
func isTopology(k cluster.Key) bool {
	switch k.Kind {
	case cluster.KindNode, cluster.KindNetwork, cluster.KindSubnet, cluster.KindClaim, cluster.KindRealm:
		return true
	}
	return false
}

// newTopology reads a snapshot, but for what the changed keys leave as it was in an old
// topology, if there is one.
//
// exposed says that nothing would keep what is of encrypted networks from going in the clear: it has no way then.
// reaches says which networks this host is to reach; nil: all.
func newTopology(snap *cluster.Snapshot, self cluster.NodeID, exposed bool, reaches func(network string) bool, old *topology, changed []cluster.Key) *topology {
	has := func(kind cluster.Kind) bool {
		return old == nil || slices.ContainsFunc(changed, func(k cluster.Key) bool { return k.Kind == kind })
	}
	t := &topology{}
	known := map[netip.Prefix][]share{}
	if old != nil {
		t.nets, t.hosts, known = old.nets, old.hosts, old.sharesBut(changed)
	}
	if has(cluster.KindNetwork) || has(cluster.KindSubnet) || has(cluster.KindRealm) {
		t.nets = newNets(snap, reaches)
	}
	if secured := len(t.secret) > 0 && !exposed; has(cluster.KindNode) || secured != (t.secure != nil) {
		t.hosts = newHosts(snap, self, secured, t.hosts)
	}
	t.share(snap, known)
	t.route()
	return t
}

// problems are the records that are left out.
func (t *topology) problems() []Problem { return slices.Concat(t.nets.problems, t.hosts.problems) }

// sharesBut are the shares of the subnets that none of these records speaks of.
func (t *topology) sharesBut(keys []cluster.Key) map[netip.Prefix][]share {
	known := maps.Clone(t.shares)
	for _, k := range keys {
		if k.Kind != cluster.KindSubnet && k.Kind != cluster.KindClaim {
			continue
		}
		block, err := netip.ParsePrefix(k.ID)
		if err != nil {
			return nil
		}
		maps.DeleteFunc(known, func(p netip.Prefix, _ []share) bool { return p.Overlaps(block) })
	}
	return known
}

func problem(b cluster.Body, format string, a ...any) Problem {
	return Problem{b.Key(), fmt.Errorf(format, a...)}
}

func newNets(snap *cluster.Snapshot, reaches func(network string) bool) *nets {
	n := &nets{network: map[string]cluster.Network{}, left: map[string]error{}, shut: map[string]bool{}}
	for net := range cluster.All[cluster.Network](snap) {
		if net.VNID > pipeline.MaxVNID {
			n.problems = append(n.problems, problem(net, "network %s: VNID %d does not fit in 24 bits", net.Name, net.VNID))
			continue
		}
		n.network[net.Name] = net
		if reaches != nil && !reaches(net.Name) {
			n.shut[net.Name] = true
		}
	}
	n.part(snap)
	n.realm = realms(n.network, snap.Realms())
	for _, net := range n.network {
		if net.Encrypted() {
			n.secret = append(n.secret, n.realm[net.Name].Number(net.VNID))
		}
	}
	slices.Sort(n.secret)
	n.secret = slices.Compact(n.secret)
	for s := range cluster.All[cluster.Subnet](snap) {
		of, there := n.network[s.Network]
		switch {
		case !there:
			continue // gossip brings the network soon
		case !s.Prefix.IsValid() || s.Prefix != s.Prefix.Masked():
			n.problems = append(n.problems, problem(s, "subnet %s of network %s is no prefix", s.Prefix, s.Network))
			continue
		}
		if !s.Prefix.Contains(s.Gateway) {
			s.Gateway = netip.Addr{}
		}
		n.subnet = append(n.subnet, s)
		n.subnets = append(n.subnets, pipeline.Subnet{Prefix: s.Prefix, VNID: of.VNID, Realm: n.realm[of.Name], Gateway: s.Gateway, Encrypted: of.Encrypted(), Shut: n.shut[of.Name]})
	}
	slices.SortFunc(n.subnet, func(a, b cluster.Subnet) int { return comparePrefix(a.Prefix, b.Prefix) })
	for i := range n.subnet { // of those that overlap, two stand side by side
		n.overlap = n.overlap || i > 0 && n.subnet[i].Prefix.Overlaps(n.subnet[i-1].Prefix)
	}
	slices.SortStableFunc(n.subnet, func(a, b cluster.Subnet) int { return cmp.Compare(b.Prefix.Bits(), a.Prefix.Bits()) })
	return n
}

// part leaves out networks that have another one's VNID, so that they are not one with it. No
// host hands out a VNID twice: it is a broken host, or a stolen one, that says so. Of several
// the one has it that was written first. A provisional network is the same as the one that it
// is about to become; and any number may have VNID 0.
func (n *nets) part(snap *cluster.Snapshot) {
	version := func(net cluster.Network) cluster.Version {
		r, _ := snap.Record(net.Key())
		return r.Version
	}
	has := map[uint32]cluster.Network{}
	for _, net := range n.network {
		if net.VNID == 0 || net.Provisional() {
			continue
		}
		if first, taken := has[net.VNID]; !taken || version(net).Compare(version(first)) < 0 {
			has[net.VNID] = net
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.network)) {
		net := n.network[name]
		first, taken := has[net.VNID]
		if !taken || net.Provisional() || first.Name == name {
			continue
		}
		p := problem(net, "network %s has VNID %d, which is that of network %s", name, net.VNID, first.Name)
		n.left[name] = p.Err
		n.problems = append(n.problems, p)
		delete(n.network, name)
	}
}

// newHosts finds the VTEPs of the other hosts. Nothing is sent to a host that claims this one's address, which is an
// earlier life of it; nor to one that encrypts all if this one does not, or the other way round; nor to one that wraps
// packets in another way. secured asks for the VTEPs inside what encrypts as well, which hosts without a key have not.
// old, if there is one, is how the hosts were before.
func newHosts(snap *cluster.Snapshot, self cluster.NodeID, secured bool, old *hosts) *hosts {
	if old == nil {
		old = &hosts{}
	}
	me, _ := cluster.Get[cluster.Node](snap, string(self))
	h := &hosts{vtep: make(map[cluster.NodeID]netip.Addr, len(old.vtep)), self: me.Tunnel().Unmap().WithZone("")}
	addrs := make([]netip.Addr, 0, len(old.vtep))
	if secured {
		h.secure = map[cluster.NodeID]netip.Addr{}
	}
	for n := range cluster.All[cluster.Node](snap) {
		h.ids = append(h.ids, n.ID)
		a := n.Tunnel().Unmap().WithZone("")
		switch {
		case n.ID == self || a == h.self:
		case n.Encap != me.Encap:
			h.problems = append(h.problems, problem(n, "host %s: one of the two hosts speaks %s and the other one %s", n.Name, me.Encapsulation().Title, cmp.Or(n.Encap, n.Encapsulation().Title)))
		case n.Encrypts() != me.Encrypts():
			h.problems = append(h.problems, problem(n, "host %s: one of the two hosts encrypts, and the other one does not", n.Name))
		case !a.IsValid() || a.IsUnspecified() || a.IsMulticast():
			h.problems = append(h.problems, problem(n, "host %s: its VTEP %s is no address to send to", n.Name, a))
		default:
			h.vtep[n.ID] = a
			addrs = append(addrs, a)
		}
		if inside := cluster.SecureVTEP(n.ID); secured && n.ID != self && n.Encap == me.Encap && inside.IsValid() && len(n.SecureKey()) > 0 && len(me.SecureKey()) > 0 {
			h.secure[n.ID] = inside
			addrs = append(addrs, inside)
		}
	}
	h.vteps = vtepsOf(addrs)
	if h.addrs = old.addrs; !slices.Equal(h.ids, old.ids) || h.addrs == nil {
		h.addrs = hostAddrs(h.ids)
	}
	h.host = h.addrs[self]
	at := make(map[netip.Addr]int, len(h.vteps))
	for i, v := range h.vteps {
		at[v.Addr] = i
	}
	for _, id := range slices.Backward(h.ids) { // of one VTEP, the lower one's first
		if i, ok := at[h.vtep[id]]; ok {
			h.vteps[i].Host = append(slices.Clip(h.addrs[id]), h.vteps[i].Host...)
		}
		if i, ok := at[h.secure[id]]; ok && h.secure[id] != h.vtep[id] {
			h.vteps[i].Host, h.vteps[i].Beside = h.addrs[id], true
		}
	}
	for i, v := range h.vteps {
		h.vteps[i].Secure = cluster.SecureRange.Contains(v.Addr)
	}
	return h
}

// share says who has what of the subnets, by the claims alone.
func (t *topology) share(snap *cluster.Snapshot, known map[netip.Prefix][]share) {
	t.shares = make(map[netip.Prefix][]share, len(t.subnet))
	for _, s := range t.subnet {
		list, ok := known[s.Prefix]
		if !ok {
			list = sharesOf(snap, s)
		}
		t.shares[s.Prefix] = list
	}
}

// route says where the shares are. Where subnets overlap, which no host would hand out,
// the narrower one has the range.
func (t *topology) route() {
	size := 0
	for _, list := range t.shares {
		size += len(list)
	}
	seen := map[netip.Prefix]bool{}
	t.routes = make([]pipeline.Route, 0, size)
	for _, s := range t.subnet {
		if t.shut[s.Network] {
			continue
		}
		network, realm := t.network[s.Network], t.realm[s.Network]
		for _, part := range t.shares[s.Prefix] {
			if t.overlap {
				if seen[part.prefix] {
					continue
				}
				seen[part.prefix] = true
			}
			vtep, secure := t.vtep[part.owner], t.secure[part.owner]
			if network.Encrypted() {
				vtep = secure
			}
			t.routes = append(t.routes, pipeline.Route{Prefix: part.prefix, VNID: network.VNID, Realm: realm, VTEP: vtep, Secure: secure})
		}
	}
}

// sharesOf is who has which part of a subnet, in the order of the addresses, the wider
// before what is inside; the longest prefix counts.
func sharesOf(snap *cluster.Snapshot, s cluster.Subnet) (list []share) {
	for c := range snap.Ring().Within(s.Prefix) {
		if s.HostBits != 0 && c.Block.Bits() < s.Prefix.Addr().BitLen()-int(s.HostBits) {
			continue
		}
		block := c.Block
		if block.Bits() < s.Prefix.Bits() {
			block = s.Prefix
		}
		if last := len(list) - 1; last >= 0 && list[last].prefix == block {
			list = list[:last] // claims around the subnet come widest first: the last one counts
		}
		list = append(list, share{block, c.Owner})
	}
	return list
}

func comparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}
