package driver

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/replica"
)

// The functions here change records inside an Update. What they see is what the
// transaction has: so they decide, not what their callers saw before.

// announce makes sure that the network's and its subnets' records are there. A
// network that is to be removed stays if anew: the user has made it anew.
func announce(tx *replica.Tx, self cluster.NodeID, n localNetwork, subnets []cluster.Subnet, anew bool) error {
	rec, live := cluster.Get[cluster.Network](tx.Snapshot(), n.Name)
	switch {
	case !live:
		rec = n.record()
	case anew && rec.Removed:
		was := rec
		if rec = again(was, n.record()); len(rec.Labels) == 0 {
			rec.Labels = was.Labels // its own are not known yet
		}
		if rec.Old = was.Old; !n.Automatic {
			rec.Old = dropOld(tx, n.Name, prefixesOfSubnets(subnets))
		}
	case anew:
		rec.Old = without(rec.Old, prefixesOfSubnets(subnets))
	case rec.Made != n.Made:
		rec.Old = withOld(tx.Snapshot(), rec.Old, subnets)
	}
	_ = tx.Put(rec) // no write if nothing changes; Update reports errors
	for _, s := range subnets {
		old, live := cluster.Get[cluster.Subnet](tx.Snapshot(), s.Prefix.String())
		switch {
		case live && old.Network != n.Name:
			return fmt.Errorf("subnet %s is network %s's; choose another one", s.Prefix, old.Network)
		case live && len(s.Aux) <= len(old.Aux):
			continue
		case !live && s.Home == "":
			s.Home = self
		}
		s.Network = n.Name
		_ = tx.Put(s) // Update reports it
	}
	return nil
}

// record is what the cluster is told of the network.
func (n localNetwork) record() cluster.Network {
	return cluster.Network{Name: n.Name, VNID: n.VNID, Options: n.Options, Labels: n.Labels, Internal: n.Internal, Attachable: n.Attachable, MTU: n.MTU, Made: n.Made}
}

// again is the record of a network that was to be removed, and that a user has made
// anew, with what it was made with this time. Others may use it still: it keeps its VNID, and stays encrypted.
func again(old, anew cluster.Network) cluster.Network {
	anew.Name, anew.VNID, anew.Labelled = old.Name, old.VNID, old.Labelled
	if old.Encrypted() {
		anew = encrypted(anew)
	}
	return anew
}

// encrypted is a network with that option.
func encrypted(n cluster.Network) cluster.Network {
	if n.Encrypted() {
		return n
	}
	if n.Options = maps.Clone(n.Options); n.Options == nil {
		n.Options = map[string]string{}
	}
	n.Options[cluster.EncryptedOption] = ""
	return n
}

// keepEncrypted writes of networks that this host made, and has containers on, that they are encrypted: another one may have
// made them at the same moment, without, where neither heard of the other.
func (d *applier) keepEncrypted(networks []string) error {
	if len(networks) == 0 {
		return nil
	}
	_, err := d.core.replica.Update(func(tx *replica.Tx) error {
		for _, name := range networks {
			if n, live := cluster.Get[cluster.Network](tx.Snapshot(), name); live {
				_ = tx.Put(encrypted(n)) // Update reports it
			}
		}
		return nil
	})
	return err
}

// subnets are the records of a network's own subnets, to announce them again.
func (n localNetwork) subnets(self cluster.NodeID) []cluster.Subnet {
	var out []cluster.Subnet
	for i, p := range n.Prefixes {
		s := cluster.Subnet{Prefix: p}
		if at := slices.IndexFunc(n.Subnets, func(s cluster.Subnet) bool { return s.Prefix == p }); at >= 0 {
			s = n.Subnets[at]
		}
		s.Network, s.Gateway, s.Home = n.Name, n.Gateways[i], self
		out = append(out, s)
	}
	return out
}

// use notes that this host has containers on the network, which keeps it.
func use(tx *replica.Tx, self cluster.NodeID, network string) {
	u := cluster.Use{Network: network, Host: self}
	if _, have := cluster.Get[cluster.Use](tx.Snapshot(), u.Key().ID); have {
		return
	}
	_ = tx.Put(u) // Update reports it
	if n, live := cluster.Get[cluster.Network](tx.Snapshot(), network); live && n.Removed {
		n.Removed = false
		_ = tx.Put(n) // Update reports it
	}
}

// retire deletes a network, its subnets, its services, which have addresses of these, and what was said of it.
func retire(tx *replica.Tx, network string) {
	for s := range cluster.All[cluster.Service](tx.Snapshot()) {
		if s.Network == network {
			tx.Delete(s.Key())
		}
	}
	for s := range cluster.All[cluster.Subnet](tx.Snapshot()) {
		if s.Network == network {
			tx.Delete(s.Key())
		}
	}
	tx.Delete(cluster.Realm{Network: network}.Key())
	tx.Delete(cluster.NetworkLimits{Network: network}.Key())
	tx.Delete(cluster.Network{Name: network}.Key())
}

// idle reports whether no host has containers on the network.
func idle(snap *cluster.Snapshot, network string) bool {
	for u := range cluster.All[cluster.Use](snap) {
		if u.Network == network {
			return false
		}
	}
	for e := range cluster.All[cluster.Endpoint](snap) {
		if e.Network == network && !e.IsClient() {
			return false
		}
	}
	return true
}

// rename makes a provisional network the one called name, which may exist: its
// subnets and this host's endpoints go over, and its VNID only if it is new. automatic says that
// nobody chose its subnets: they do not replace those that it may have.
func rename(tx *replica.Tx, self cluster.NodeID, old, name string, labels map[string]string, automatic bool) {
	from, begun := cluster.Get[cluster.Network](tx.Snapshot(), old)
	to, live := cluster.Get[cluster.Network](tx.Snapshot(), name)
	switch {
	case !live && !begun:
		return // it is announced anew when it is used
	case !live:
		to = from
		to.Name = name
	case to.Removed && begun:
		was := to
		if to = again(was, from); automatic {
			to.Old = was.Old
		} else {
			to.Old = dropOld(tx, name, nil)
		}
		to.Labels = labels
	default:
		to.Old = without(to.Old, prefixesOf(tx.Snapshot(), old))
		if from.Encrypted() { // as with isolation
			to = encrypted(to)
		}
		if from.Isolated() && !to.Isolated() { // two made it at the same moment, and one of them relies on it
			to.Options = maps.Clone(to.Options)
			if to.Options == nil {
				to.Options = map[string]string{}
			}
			to.Options[cluster.IsolateOption] = "true"
		}
		to.Labelled = to.Labelled || from.Labelled
	}
	_ = tx.Put(to) // no write if nothing changes; Update reports errors
	relabel(tx, name, labels, false)
	for s := range cluster.All[cluster.Subnet](tx.Snapshot()) {
		if s.Network == old {
			s.Network = name
			_ = tx.Put(s) // Update reports it
		}
	}
	for e := range cluster.All[cluster.Endpoint](tx.Snapshot()) {
		if e.Network == old && e.Host == self {
			e.Network = name
			_ = tx.Put(e) // Update reports it
		}
	}
	was := cluster.Use{Network: old, Host: self}
	if _, used := cluster.Get[cluster.Use](tx.Snapshot(), was.Key().ID); used {
		use(tx, self, name)
		tx.Delete(was.Key())
	}
	tx.Delete(cluster.Network{Name: old}.Key())
}

// relabel gives the network the labels of the Docker network that a user made last, if
// that one has any, or if it made the network what it is (exactly): Compose tells by them which
// networks are its own.
func relabel(tx *replica.Tx, name string, labels map[string]string, exactly bool) {
	n, live := cluster.Get[cluster.Network](tx.Snapshot(), name)
	if live && (exactly || len(labels) > 0) {
		n.Labels = labels
		_ = tx.Put(n) // Update reports it
	}
}

// asListed notes of a network how Docker lists it, if what Docker has is what made it what it is: the
// other hosts' shall look the same.
func (n *localNetwork) asListed(tx *replica.Tx, dn docker.Network) {
	rec, live := cluster.Get[cluster.Network](tx.Snapshot(), n.Name)
	if !live || rec.Made != making(dn.ID) {
		return
	}
	n.Attachable, rec.Attachable = dn.Attachable, dn.Attachable
	_ = tx.Put(rec) // no write if nothing changes; Update reports errors
	for i, s := range n.Subnets {
		implied := slices.ContainsFunc(dn.Pools, func(p docker.IPAM) bool { return p.Subnet == s.Prefix.String() && p.Gateway == "" })
		n.Subnets[i].Implied = implied
		if at, live := cluster.Get[cluster.Subnet](tx.Snapshot(), s.Prefix.String()); live && at.Network == n.Name {
			at.Implied = implied
			_ = tx.Put(at)
		}
	}
}

// prefixesOf returns the prefixes of a network's live subnets.
func prefixesOf(snap *cluster.Snapshot, network string) (out []netip.Prefix) {
	for s := range cluster.All[cluster.Subnet](snap) {
		if s.Network == network {
			out = append(out, s.Prefix)
		}
	}
	return out
}
