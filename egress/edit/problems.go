package edit

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/egress"
	"github.com/grapevine-net/grapevine/egress/hold"
)

// state is how an egress stands, as this host sees it.
type state struct {
	holder string // its name; "": nobody
	notes  []string
	note   hold.Note // what is in the way of this host's holding it
}

func (d Desk) state(snap *cluster.Snapshot, l egress.Listed) (s state) {
	s.note = d.Notes()[l.Name]
	gateways := egress.Hear(l.Egress, egress.Gateways(snap, l.Egress, d.Alive), func(id cluster.NodeID) (heard, known bool) {
		heard, known = d.Hear(id)
		return heard || !known, true // who is asked just now is no problem yet
	})
	h, _ := cluster.Get[cluster.EgressHolder](snap, l.Name)
	say := func(format string, a ...any) { s.notes = append(s.notes, fmt.Sprintf(format, a...)) }
	c := egress.Case{Self: d.Self, Egress: l.Egress, Gateways: gateways, Holder: h.Host}
	if n, ok := cluster.Get[cluster.Node](snap, string(h.Host)); ok {
		s.holder = n.Name
	}
	switch {
	case l.Twice:
		s.holder = ""
	case l.Quorum && !c.Quorum():
		s.holder = ""
		say("not more than half of its gateways answer this host, and it wants a quorum")
	case s.holder == "":
		say("no host holds its address: what its %s send to the outside is dropped", map[bool]string{true: "containers", false: "networks"}[len(l.Labels) > 0])
	case !d.Alive(h.Host):
		say("host %s, which holds its address, does not answer", s.holder)
	}
	for _, g := range linkless(gateways) {
		say("host %s cannot hold it: its interface %s has no link, or none that lasts", g.Name, g.NIC)
	}
	if older := unable(snap, l.Egress); len(older) > 0 {
		say("gateways with an older agent cannot hold its IPv6 address: %s; while one of them is the holder, what its networks send to the outside by IPv6 is dropped: upgrade their agents, or name other gateways", strings.Join(older, ", "))
	}
	for _, name := range ofAll(snap, l) {
		say("network %s was made anew, with VNID 0: its containers leave by their own hosts", name)
	}
	s.notes = append(s.notes, labelNotes(snap, l)...)
	for _, c := range l.Clashes {
		say("%s", clash(l, c))
	}
	switch n := s.note; {
	case n.Silent && len(n.Occupied) == 0:
		say("the host that held it still answers for it, by way of the routers, without its agent: nobody takes it from there until they forget it")
	case n.Silent:
		say("the host that held it still answers for it (%s), without its agent: nobody takes it from there", n.Occupied)
	case n.Occupied != nil:
		say("%s has its address", machine(n.Occupied, "this host's"))
	case n.Rival != nil:
		say("another machine on this host's LAN, %s, has its address as well", n.Rival)
	case n.Unfit:
		say("this host has no interface on a LAN in whose subnet its address can be a machine's, nor a session by BGP with a router that could lead here")
	case n.Twice:
		say("this host has its address, which nobody but an administrator has given it")
	case n.Err != nil:
		say("on this host: %v", n.Err)
	}
	return s
}

// clash says what an egress cannot have, and what becomes of it.
func clash(l egress.Listed, c egress.Clash) string {
	switch {
	case c.Addr.IsValid():
		return fmt.Sprintf("egress %s has the address %v of egress %s, which comes first by its name: containers of %s do not reach the outside", l.Name, c.Addr, c.With, whose(l.Egress))
	case c.Network == "":
		return fmt.Sprintf("there are two egresses %s, and the one of whole networks comes first: containers of %s do not reach the outside", c.With, whose(l.Egress))
	case len(l.Labels) > 0:
		return fmt.Sprintf("egresses %s and %s ask for the same labels of network %s: its containers with %s leave by %[1]s, which comes first by its name, and none by %[2]s", c.With, l.Name, c.Network, strings.Join(l.Labels, " and "))
	}
	return fmt.Sprintf("network %s has two egresses, %s and %s: its containers leave by %[2]s, which comes first by its name, and none by %[3]s", c.Network, c.With, l.Name)
}

// machine says who has an address: by its MAC on a LAN, or whoever routers lead to.
func machine(mac net.HardwareAddr, whose string) string {
	if len(mac) == 0 {
		return "a machine to which the routers lead"
	}
	return fmt.Sprintf("another machine on %s LAN, %s,", whose, mac)
}

// Problems says what is wrong with egresses that concern this host: it is a gateway, or has containers of theirs.
func (d Desk) Problems(snap *cluster.Snapshot) []api.Problem {
	all := egress.All(snap)
	var list causes
	for _, l := range all {
		s := d.state(snap, l)
		say := func(code api.Code, what, do string) {
			list = list.add(l.Egress, api.Problem{Code: code, What: what, Do: do})
		}
		for _, c := range l.Clashes {
			if d.concerns(snap, l) || slices.ContainsFunc(all, func(o egress.Listed) bool { return o.Name == c.With && d.concerns(snap, o) }) {
				say(api.EgressClash, clash(l, c), "have one of them for all, or take from one what both have: `grapevine egress set`, `grapevine egress remove`")
			}
		}
		if names := ofAll(snap, l); len(names) > 0 && d.concerns(snap, l) {
			say(api.EgressPassedBy,
				"containers of "+networks(cluster.Egress{Networks: names})+" reach the outside from their own hosts' addresses, and not from {address}, by {egress}: it was created anew with VNID 0",
				"create it anew without `-o vnid=0`, or remove the egress: grapevine egress remove {name}")
		}
		if older := unknowing(snap, l.Egress); len(older) > 0 && d.concerns(snap, l) {
			say(api.EgressPassedBy,
				"containers of {whose} reach the outside from their own hosts' addresses, and not from {address}, by {egress}, on hosts with an older agent: "+strings.Join(older, ", "),
				"upgrade the agents of these hosts")
		}
		if lacks := d.Lacks(); lacks != "" && d.elsewhere(snap, l) {
			say(api.EgressUnanswered,
				"who comes in from outside by a port that this host publishes is not answered by containers of {whose}, which leave by {egress}: this host's switch lacks "+lacks+", by which it would tell answers from what they send out",
				"boot a kernel whose Open vSwitch tracks connections by zones (CONFIG_NF_CONNTRACK_ZONES), or publish these ports on the host that holds {address}, or remove the egress: grapevine egress remove {name}")
		}
		if gateways := egress.Gateways(snap, l.Egress, d.Alive); d.gateway(gateways) {
			for _, g := range linkless(gateways) {
				say(api.EgressUnfit,
					fmt.Sprintf("host %s is a gateway of {egress}, and cannot hold {address}: its interface %s has no link, or none that lasts", g.Name, g.NIC),
					fmt.Sprintf("see to its cable and to what is at the other end, and on that host to `ip link show %s`; or name other gateways: grapevine egress set {name} --gateways HOSTS", g.NIC))
			}
		}
		const find = "find that machine (`ip neigh`, the switch's table) and give it another address, or the egress: grapevine egress set {name} --address ADDRESS"
		switch n := s.note; {
		case n.Occupied != nil && !n.Silent:
			say(api.EgressTaken, "this host cannot hold {address} for {egress}: "+machine(n.Occupied, "its")+" has {that}", find)
			continue
		case n.Silent && len(l.Labels) > 0:
			say(api.EgressUnheld,
				"containers of {whose} that come now do not reach the outside from {address}, by {egress}: host "+s.holder+", which holds {it}, goes on without its agent, and knows those alone that came before",
				"start that agent: `systemctl start grapevine` on host "+s.holder)
			continue
		case n.Silent: // it does its work all the same
			continue
		case n.Rival != nil:
			say(api.EgressTaken, fmt.Sprintf("this host holds {address} for {egress}, and another machine on its LAN, %s, has {that} as well: answers from the outside go to the one or to the other", n.Rival), find)
		case n.Twice:
			say(api.EgressTaken, "this host has {address} of {egress}, which host "+s.holder+" holds: the LAN sees {it} twice",
				"`ip addr del ADDRESS dev NIC`, and take it out of this host's network configuration")
		case n.Unfit && len(l.Gateways) > 0:
			say(api.EgressUnfit, "this host is to be a gateway of {egress}, and has no interface on a LAN in whose subnet {address} can be a machine's, nor a session by BGP with a router that could lead here",
				"give it one, or set GRAPEVINE_BGP and see `grapevine bgp`, or name other gateways: grapevine egress set {name} --gateways HOSTS")
		}
		if l.Twice || s.holder != "" && d.holds(snap, l) || !d.concerns(snap, l) {
			continue
		}
		do := "do not"
		if s.holder != "" {
			do = "may not"
		}
		say(api.EgressUnheld, "containers of {whose} "+do+" reach the outside from {address}, by {egress}: "+strings.Join(s.notes, "; "),
			"start one of its gateways; on each, `grapevine status` says what is in the way: `grapevine egress show {name}`")
	}
	return list.problems()
}

// ofAll are the networks of an egress that are of VNID 0 by now: Create refuses such.
func ofAll(snap *cluster.Snapshot, l egress.Listed) (names []string) {
	for _, name := range l.Networks {
		if n, ok := cluster.Get[cluster.Network](snap, name); ok && n.VNID == 0 {
			names = append(names, name)
		}
	}
	return names
}

// holds reports whether the host by the record does hold an egress, with all its addresses, as far as this one knows.
func (d Desk) holds(snap *cluster.Snapshot, l egress.Listed) bool {
	h, _ := cluster.Get[cluster.EgressHolder](snap, l.Name)
	n, _ := cluster.Get[cluster.Node](snap, string(h.Host))
	gone := slices.ContainsFunc(egress.Gateways(snap, l.Egress, d.Alive), func(g egress.Gateway) bool { return g.ID == h.Host && g.Unfit })
	return d.Alive(h.Host) && egress.Able(n, l.Egress) && !gone && (h.Host != d.Self || !d.Notes()[l.Name].Any())
}

// elsewhere reports whether containers of this host leave by an egress that another host holds, or none.
func (d Desk) elsewhere(snap *cluster.Snapshot, l egress.Listed) bool {
	h, _ := cluster.Get[cluster.EgressHolder](snap, l.Name)
	return (h.Host != d.Self || l.Twice) && d.leaves(snap, l)
}

// linkless are those gateways that live, and whose interface for an egress has no link.
func linkless(gateways []egress.Gateway) []egress.Gateway {
	return slices.DeleteFunc(slices.Clone(gateways), func(g egress.Gateway) bool { return g.NIC == "" || !g.Alive })
}

// gateway reports whether this host is one of them.
func (d Desk) gateway(list []egress.Gateway) bool {
	return slices.ContainsFunc(list, func(g egress.Gateway) bool { return g.ID == d.Self })
}

func (d Desk) concerns(snap *cluster.Snapshot, l egress.Listed) bool {
	if d.gateway(egress.Gateways(snap, l.Egress, d.Alive)) {
		return true
	}
	return d.leaves(snap, l)
}

// leaves reports whether a container of this host leaves by an egress, or it is not known yet by which one it does.
func (d Desk) leaves(snap *cluster.Snapshot, l egress.Listed) bool {
	choice := egress.NewChoice(snap, egress.All(snap))
	for e := range cluster.Written[cluster.Endpoint](snap, d.Self) {
		if by, known := choice.Of(e); slices.Contains(l.Networks, e.Network) && (len(l.Labels) == 0 || by == l.Name || !known) {
			return true
		}
	}
	return false
}
