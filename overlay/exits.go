package overlay

import (
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/egress"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// exitsOf are the ways to the outside of networks that have an egress: by its holder, wherever that is, or none.
// ready says for which subnets, or containers, this host is, of those that it holds; track, whether the switch tracks connections; and
// waiting, with which hosts endpoints do not talk (Config.Unheard): a holder that takes one for who had its address before would let it
// leave as that one.
func exitsOf(snap *cluster.Snapshot, self cluster.NodeID, t *topology, ready func(name string, subnet netip.Prefix) bool, track bool, waiting map[string][]cluster.NodeID) (list []pipeline.Exit) {
	all := egress.All(snap)
	choice := egress.NewChoice(snap, all)
	by := map[string][]egress.Leaver{}
	// formerly reports whether a container of this host has the address of one that left by an egress which is here, and
	// NAT has that yet.
	formerly := func(a netip.Addr) bool {
		return ready != nil && slices.ContainsFunc(all, func(e egress.Listed) bool { return len(e.Labels) > 0 && ready(e.Name, single(a)) })
	}
	waits := waitsFor(snap, self, waiting)
	for _, l := range choice.Leaving(self) {
		switch n, ok := t.network[l.Network]; {
		case l.Known && l.By == "" && l.Host == self && ok && n.VNID != 0 && formerly(l.Addr):
			list = append(list, pipeline.Exit{VNID: n.VNID, Track: track, Listed: true, Addrs: []netip.Addr{l.Addr}})
		case l.Known && l.By != "" && l.Host == self && ok && n.VNID != 0 && waits(l.Addr, holder(snap, l.By)):
			list = append(list, pipeline.Exit{VNID: n.VNID, Track: track, Listed: true, Addrs: []netip.Addr{l.Addr}, Unheard: true})
		case l.Known:
			by[l.By] = append(by[l.By], l)
		case l.Host == self && ok && n.VNID != 0: // of other hosts' nothing is let in
			list = append(list, pipeline.Exit{VNID: n.VNID, Track: track, Listed: true, Addrs: []netip.Addr{l.Addr}, Unknown: true})
		}
	}
	for _, e := range all {
		h, _ := cluster.Get[cluster.EgressHolder](snap, e.Name)
		exit := pipeline.Exit{Track: track, V4: e.Addr(false).IsValid(), V6: e.Addr(true).IsValid()}
		n, _ := cluster.Get[cluster.Node](snap, string(h.Host))
		exit.V6 = exit.V6 && egress.Able(n, e.Egress) // or it would leave with an address that nobody holds
		behind := func(vtep netip.Addr) (to pipeline.Exit) {
			if to = exit; e.Twice || h.Host == self || !vtep.IsValid() { // the address is another one's; or it is here, as far as it is ready for a network
				return to
			}
			i := slices.IndexFunc(t.vteps, func(v pipeline.VTEP) bool { return v.Addr == vtep })
			to.VTEP, to.Index, to.Hosts = vtep, t.vteps[i].Index, t.vteps[i].Host
			return to
		}
		holds := !e.Twice && h.Host == self && ready != nil
		for _, name := range e.Networks {
			n, ok := t.network[name]
			if !ok || n.VNID == 0 || slices.Contains(e.Taken, name) {
				continue
			}
			way := behind(t.vtep[h.Host])
			if n.Encrypted() { // inside what encrypts, or not at all
				way = behind(t.secure[h.Host])
			}
			way.VNID = n.VNID
			way.Routers = t.routers(n.VNID)
			switch {
			case len(e.Labels) > 0:
				list = append(list, perContainer(way, by[e.Name], name, self, holds, func(a netip.Addr) bool {
					return ready(e.Name, single(a))
				})...)
			case choice.Asks(name):
				whole := holds && leads(t, e.Egress, name, ready)
				list = append(list, perContainer(way, by[e.Name], name, self, holds, func(a netip.Addr) bool {
					return whole && ready(e.Name, single(a)) // or it had another one's address, which NAT has yet
				})...)
			default:
				way.Here = holds && leads(t, e.Egress, name, ready)
				list = append(list, way)
			}
		}
	}
	return list
}

// waitsFor tells which addresses of this host's endpoints wait for a host.
func waitsFor(snap *cluster.Snapshot, self cluster.NodeID, waiting map[string][]cluster.NodeID) func(a netip.Addr, host cluster.NodeID) bool {
	of := map[netip.Addr][]cluster.NodeID{}
	for id, hosts := range waiting {
		e, _ := cluster.Get[cluster.Endpoint](snap, id)
		for _, a := range e.Addrs {
			of[a] = hosts
		}
	}
	return func(a netip.Addr, host cluster.NodeID) bool {
		hosts, waits := of[a]
		return waits && (hosts == nil && host != self || slices.Contains(hosts, host))
	}
}

// holder is the host that holds an egress's address, "" if none does.
func holder(snap *cluster.Snapshot, egress string) cluster.NodeID {
	h, _ := cluster.Get[cluster.EgressHolder](snap, egress)
	return h.Host
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// routers are the gateway addresses of a network.
func (t *topology) routers(vnid uint32) (list []netip.Prefix) {
	for _, s := range t.subnets {
		if s.VNID == vnid && s.Gateway.IsValid() {
			list = append(list, netip.PrefixFrom(s.Gateway, s.Prefix.Bits()))
		}
	}
	return list
}

// perContainer are the ways of those containers of a network that leave by an egress, not all: of this host's, and, where
// this host holds it, of other hosts' that NAT has. Of this host's those that NAT does not have yet have none.
func perContainer(way pipeline.Exit, of []egress.Leaver, network string, self cluster.NodeID, holds bool, ready func(netip.Addr) bool) (list []pipeline.Exit) {
	way.Listed = true
	none := way
	for _, l := range of {
		switch here := l.Host == self; {
		case l.Network != network || !here && !holds:
		case !holds || ready(l.Addr):
			way.Addrs = append(way.Addrs, l.Addr)
		case here:
			none.Addrs = append(none.Addrs, l.Addr)
		}
	}
	way.Here = holds
	for _, w := range []pipeline.Exit{way, none} {
		if len(w.Addrs) > 0 {
			list = append(list, w)
		}
	}
	return list
}

// leads reports whether this host is ready to be the way out for all subnets of a network. One that came later, as with
// a network that the egress has from now on, would leave by this host's own address before NAT has it.
func leads(t *topology, e cluster.Egress, network string, ready func(name string, subnet netip.Prefix) bool) bool {
	for _, s := range t.subnet {
		if s.Network == network && e.Addr(s.Prefix.Addr().Is6()).IsValid() && !ready(e.Name, s.Prefix) {
			return false
		}
	}
	return true
}
