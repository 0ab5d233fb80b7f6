package driver

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/replica"
)

// A user may remove a network on one host and make it anew there in the same moment, with another
// subnet, label or option, as Compose does when its file has changed. The other hosts see the
// network go on, under its name. Each compares what its Docker has with what the cluster has now:
// what no container is on is made anew; what is in use stays, its subnets with it, and is named.

// Outdated is a network of this host's Docker from before it was made anew elsewhere.
type Outdated struct {
	Network    string
	Why        string   // in what it differs
	Containers []string // that are on it, running or not
}

// Here is Driver.Here.
func (d *mirror) Here() map[string]bool {
	outdated, snap := d.Outdated(), d.core.replica.Snapshot()
	here := map[string]bool{}
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	for id, n := range d.core.local.networks {
		_, unstored := d.core.unstored[id]
		if n.Learnt && n.Conflict == "" && !unstored && !followed(snap, n) {
			here[n.Name] = true
		}
	}
	for _, o := range outdated {
		delete(here, o.Network)
	}
	return here
}

// making is what a network's record says of its making, for one that Docker made as id.
func making(id string) string { return id[:min(12, len(id))] }

// Outdated is Driver.Outdated.
func (d *mirror) Outdated() []Outdated {
	if list := d.outdated.Load(); list != nil {
		return slices.Clone(*list)
	}
	return nil
}

// seeOutdated says in what local networks differ from the cluster's, by Docker's ID.
func (v view) seeOutdated() map[string]string {
	out := map[string]string{}
	for _, dn := range v.networks {
		n, ours := v.local[dn.ID]
		if !ours || !n.Learnt || n.Conflict != "" {
			continue
		}
		if rec, live := cluster.Get[cluster.Network](v.snap, n.Name); live && !rec.Removed {
			if why := v.differs(rec, n, dn); why != "" {
				out[dn.ID] = why
			}
		}
	}
	return out
}

// differs says in what a local network is not the cluster's, "" if it is. One that was made by a
// user as part of what the cluster has may have labels, options and fewer subnets of its own, as
// long as that one is not made anew.
func (v view) differs(rec cluster.Network, n localNetwork, dn docker.Network) string {
	for i, p := range n.Prefixes {
		s, live := cluster.Get[cluster.Subnet](v.snap, p.String())
		switch {
		case !live || s.Network != n.Name || slices.Contains(rec.Old, p):
			return fmt.Sprintf("its subnet is %s, which the network has no more", p)
		case s.Gateway != n.Gateways[i]:
			return fmt.Sprintf("its gateway is %s, the network's is %s", n.Gateways[i], s.Gateway)
		}
	}
	if rec.Internal != n.Internal {
		return "one of the two is internal"
	}
	if strict := n.Replica || rec.Made != "" && rec.Made != n.Made; !strict || dn.Name != rec.Name {
		return ""
	}
	if !v.hasPools(rec, n, dn) {
		return "it has other subnets, gateways, ranges or reserved addresses, or has them in another order"
	}
	if dn.Attachable != rec.Attachable {
		return "one of the two is attachable"
	}
	if kept, _ := cluster.FitLabels(dn.Labels); !maps.Equal(kept, rec.Labels) {
		return "it has other labels"
	}
	if !maps.Equal(userOptions(dn.Options), userOptions(rec.Options)) {
		return "it has other options"
	}
	return ""
}

// userOptions are those that a user gave: not our own mark, nor those that engines add.
func userOptions(all map[string]string) map[string]string {
	own := maps.Clone(all)
	maps.DeleteFunc(own, func(key, _ string) bool {
		return key == optReplica || strings.HasPrefix(key, "com.docker.network.enable_")
	})
	return own
}

// hasPools reports whether a network in Docker has a subnet of each family that the cluster's has,
// and, where the agent made it, what is reserved in them. Hosts that make a network without saying
// a subnet have one each.
func (v view) hasPools(rec cluster.Network, n localNetwork, dn docker.Network) bool {
	has := map[bool]bool{} // by whether it is IPv6
	for _, p := range n.Prefixes {
		has[p.Addr().Is6()] = true
	}
	var own []cluster.Subnet
	for s := range cluster.All[cluster.Subnet](v.snap) {
		if s.Network != rec.Name || slices.Contains(rec.Old, s.Prefix) {
			continue
		}
		if !has[s.Prefix.Addr().Is6()] {
			return false
		}
		if slices.Contains(n.Prefixes, s.Prefix) {
			own = append(own, s)
		}
	}
	return !n.Replica || sameReserved(own, dn.Pools) && samePlaces(own, dn.Pools)
}

// samePlaces reports whether pools are in the order of the subnets' places: containers get their
// addresses from the first. A network's record may come before what its subnets' say of that.
func samePlaces(set []cluster.Subnet, pools []docker.IPAM) bool {
	place := func(s cluster.Subnet) int {
		return slices.IndexFunc(pools, func(p docker.IPAM) bool { return p.Subnet == poolOf(s).Subnet })
	}
	for _, a := range set {
		for _, b := range set {
			if a.Prefix.Addr().Is4() == b.Prefix.Addr().Is4() && a.Place < b.Place && place(b) >= 0 && place(a) > place(b) {
				return false
			}
		}
	}
	return true
}

// sameReserved compares ranges and auxiliary addresses, and gateways that were said: an engine may list
// what nobody said.
func sameReserved(set []cluster.Subnet, pools []docker.IPAM) bool {
	for _, s := range set {
		want := poolOf(s)
		for _, have := range pools {
			if have.Subnet == want.Subnet && (have.Range != want.Range || !maps.Equal(have.Aux, want.Aux) || want.Gateway != "" && have.Gateway != want.Gateway) {
				return false
			}
		}
	}
	return true
}

// decideOutdated has an outdated network made anew if nothing is on it, and else named.
func (v view) decideOutdated(p *plan, n localNetwork, dn docker.Network, used bool) {
	why := v.outdated[dn.ID]
	if why == "" {
		return
	}
	rec, _ := cluster.Get[cluster.Network](v.snap, n.Name)
	if like := v.likeness(rec); !used && v.replicate && dn.Name == rec.Name && v.remade[dn.Name] != like {
		p.vanish = append(p.vanish, dn)
		if p.remade == nil {
			p.remade = map[string]string{}
		}
		p.remade[dn.ID] = like
		return
	}
	o := Outdated{Network: n.Name, Why: why}
	for _, c := range v.containers {
		if slices.ContainsFunc(c.Networks, func(at docker.Attachment) bool {
			return at.NetworkID == dn.ID || at.NetworkID == "" && at.Network == dn.Name
		}) {
			o.Containers = append(o.Containers, c.Name)
		}
	}
	slices.Sort(o.Containers)
	p.outdated = append(p.outdated, o)
}

// likeness is all that a network is made of here. What is made of it and differs still, for a
// reason nobody thought of, is not made again and again.
func (v view) likeness(rec cluster.Network) string {
	dn, _ := v.replica(rec)
	return fmt.Sprint(dn, rec.Made)
}

func (v view) hasEndpoints(network string) bool {
	for _, e := range v.endpoints {
		if e.Network == network {
			return true
		}
	}
	return false
}

// refreshMade notes of local networks that they are what the cluster has.
func (d *mirror) refreshMade(v view) error {
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	outdated := v.seeOutdated()
	for _, dn := range v.networks {
		n, ours := d.core.local.networks[dn.ID]
		rec, live := cluster.Get[cluster.Network](v.snap, n.Name)
		if !ours || !live || !n.Learnt || rec.Removed || outdated[dn.ID] != "" || n.Made == rec.Made {
			continue
		}
		n.Made = rec.Made
		if err := d.core.local.setNetwork(n); err != nil {
			return err
		}
	}
	return nil
}

// followed reports whether the network was made anew elsewhere, and this host's is from before.
func followed(snap *cluster.Snapshot, n localNetwork) bool {
	rec, live := cluster.Get[cluster.Network](snap, n.Name)
	return live && !rec.Removed && rec.Made != n.Made
}

// dropOld deletes the subnets of a network that is made anew, but for those in keep, and those
// that containers have addresses of: they are returned.
func dropOld(tx *replica.Tx, network string, keep []netip.Prefix) (old []netip.Prefix) {
	for _, p := range without(prefixesOf(tx.Snapshot(), network), keep) {
		if inhabited(tx.Snapshot(), network, p) {
			old = append(old, p)
			continue
		}
		tx.Delete(cluster.Subnet{Prefix: p}.Key())
	}
	return old
}

// dropUnused deletes the subnets of what is removed of a network here that no container has an
// address of, if others of its subnets stay: else each time that it is removed and made here, while
// it is in use elsewhere, would add one.
func dropUnused(tx *replica.Tx, n localNetwork) {
	others := without(prefixesOf(tx.Snapshot(), n.Name), n.Prefixes)
	if !slices.ContainsFunc(others, func(p netip.Prefix) bool { return inhabited(tx.Snapshot(), n.Name, p) }) {
		return
	}
	for _, p := range n.Prefixes {
		s, live := cluster.Get[cluster.Subnet](tx.Snapshot(), p.String())
		if live && s.Network == n.Name && !inhabited(tx.Snapshot(), n.Name, p) {
			tx.Delete(s.Key())
		}
	}
}

// dropOrphans deletes the subnets that this host brought to a network which the cluster has no more: who
// deleted it had not heard of them, as when several hosts remove and make it at once. They would be
// those of the next one of that name, and in nobody's Docker.
func dropOrphans(tx *replica.Tx, self cluster.NodeID, n localNetwork) {
	for _, p := range n.Prefixes {
		s, live := cluster.Get[cluster.Subnet](tx.Snapshot(), p.String())
		if live && s.Network == n.Name && s.Home == self && !inhabited(tx.Snapshot(), n.Name, p) {
			tx.Delete(s.Key())
		}
	}
}

// comeBack is how long a network that a user has removed here, and that is in use elsewhere, stays
// away: as long as the user may take to make it anew, which with it there would fail.
const comeBack = 2 * time.Second

// withOld adds to the old subnets of a network those that are announced again though the network,
// made anew, goes on without them.
func withOld(snap *cluster.Snapshot, old []netip.Prefix, subnets []cluster.Subnet) []netip.Prefix {
	for _, s := range subnets {
		if _, live := cluster.Get[cluster.Subnet](snap, s.Prefix.String()); !live && !slices.Contains(old, s.Prefix) {
			old = append(slices.Clone(old), s.Prefix)
		}
	}
	return old
}

// inhabited reports whether a container of a network has an address in a prefix.
func inhabited(snap *cluster.Snapshot, network string, p netip.Prefix) bool {
	for e := range cluster.All[cluster.Endpoint](snap) {
		if e.Network == network && slices.ContainsFunc(e.Addrs, p.Contains) {
			return true
		}
	}
	return false
}

// oldSubnets are those of a network that nobody uses any more.
func (v view) oldSubnets(n cluster.Network) (out []cluster.Subnet) {
	for _, p := range n.Old {
		if !inhabited(v.snap, n.Name, p) {
			out = append(out, cluster.Subnet{Prefix: p, Network: n.Name})
		}
	}
	return out
}

func prefixesOfSubnets(list []cluster.Subnet) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, s.Prefix)
	}
	return out
}

// without returns the prefixes of list that are not in drop, nil if there are none.
func without(list, drop []netip.Prefix) (out []netip.Prefix) {
	for _, p := range list {
		if !slices.Contains(drop, p) {
			out = append(out, p)
		}
	}
	return out
}
