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
		say("another egress has its address, or its name, and comes first: remove one of the two")
	case l.Quorum && !c.Quorum():
		s.holder = ""
		say("not more than half of its gateways answer this host, and it wants a quorum")
	case s.holder == "":
		say("no host holds its address: what its %s send to the outside is dropped", map[bool]string{true: "containers", false: "networks"}[len(l.Labels) > 0])
	case !d.Alive(h.Host):
		say("host %s, which holds its address, does not answer", s.holder)
	}
	if older := unable(snap, l.Egress); len(older) > 0 {
		say("gateways with an older agent cannot hold its IPv6 address: %s; while one of them is the holder, what its networks send to the outside by IPv6 is dropped: upgrade their agents, or name other gateways", strings.Join(older, ", "))
	}
	for _, name := range ofAll(snap, l) {
		say("network %s was made anew, with VNID 0: its containers leave by their own hosts", name)
	}
	s.notes = append(s.notes, labelNotes(snap, l)...)
	for _, n := range l.Taken {
		say("network %s has another egress, which comes first by its name", n)
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

// machine says who has an address: by its MAC on a LAN, or whoever routers lead to.
func machine(mac net.HardwareAddr, whose string) string {
	if len(mac) == 0 {
		return "a machine to which the routers lead"
	}
	return fmt.Sprintf("another machine on %s LAN, %s,", whose, mac)
}

// Problems says what is wrong with egresses that concern this host: it is a gateway, or has containers of theirs.
func (d Desk) Problems(snap *cluster.Snapshot) (list []api.Problem) {
	for _, l := range egress.All(snap) {
		s := d.state(snap, l)
		address := addresses(l.Egress)
		if names := ofAll(snap, l); len(names) > 0 && d.concerns(snap, l) {
			list = append(list, api.Problem{
				Code: api.EgressPassedBy,
				What: fmt.Sprintf("containers of %s reach the outside from their own hosts' addresses, and not from %s, by egress %s: it was created anew with VNID 0", networks(cluster.Egress{Networks: names}), address, l.Name),
				Do:   "create it anew without `-o vnid=0`, or remove the egress: grapevine egress remove " + l.Name,
			})
		}
		if older := unknowing(snap, l.Egress); len(older) > 0 && d.concerns(snap, l) {
			list = append(list, api.Problem{
				Code: api.EgressPassedBy,
				What: fmt.Sprintf("containers of %s reach the outside from their own hosts' addresses, and not from %s, by egress %s, on hosts with an older agent: %s", whose(l.Egress), address, l.Name, strings.Join(older, ", ")),
				Do:   "upgrade the agents of these hosts",
			})
		}
		switch n := s.note; {
		case n.Occupied != nil && !n.Silent:
			list = append(list, api.Problem{
				Code: api.EgressTaken,
				What: fmt.Sprintf("this host cannot hold %s for egress %s: %s has that address", address, l.Name, machine(n.Occupied, "its")),
				Do:   "find that machine (`ip neigh`, the switch's table) and give it another address, or the egress: grapevine egress set " + l.Name + " --address ADDRESS",
			})
			continue
		case n.Silent: // it does its work all the same
			continue
		case n.Rival != nil:
			list = append(list, api.Problem{
				Code: api.EgressTaken,
				What: fmt.Sprintf("this host holds %s for egress %s, and another machine on its LAN, %s, has that address as well: answers from the outside go to the one or to the other", address, l.Name, n.Rival),
				Do:   "find that machine (`ip neigh`, the switch's table) and give it another address, or the egress: grapevine egress set " + l.Name + " --address ADDRESS",
			})
		case n.Twice:
			list = append(list, api.Problem{
				Code: api.EgressTaken,
				What: fmt.Sprintf("this host has the address %s of egress %s, which host %s holds: the LAN sees it twice", address, l.Name, s.holder),
				Do:   "`ip addr del ADDRESS dev NIC`, and take it out of this host's network configuration",
			})
		case n.Unfit && len(l.Gateways) > 0:
			list = append(list, api.Problem{
				Code: api.EgressUnfit,
				What: fmt.Sprintf("this host is to be a gateway of egress %s, and has no interface on a LAN in whose subnet %s can be a machine's address, nor a session by BGP with a router that could lead here", l.Name, address),
				Do:   "give it one, or set GRAPEVINE_BGP and see `grapevine bgp`, or name other gateways: grapevine egress set " + l.Name + " --gateways HOSTS",
			})
		}
		if !l.Twice && s.holder != "" && d.holds(snap, l) || !d.concerns(snap, l) {
			continue
		}
		do := "do not"
		if s.holder != "" {
			do = "may not"
		}
		list = append(list, api.Problem{
			Code: api.EgressUnheld,
			What: fmt.Sprintf("containers of %s %s reach the outside from %s, by egress %s: %s", whose(l.Egress), do, address, l.Name, strings.Join(s.notes, "; ")),
			Do:   "start one of its gateways; on each, `grapevine status` says what is in the way: `grapevine egress show " + l.Name + "`",
		})
	}
	return list
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
	return d.Alive(h.Host) && egress.Able(n, l.Egress) && (h.Host != d.Self || !d.Notes()[l.Name].Any())
}

func (d Desk) concerns(snap *cluster.Snapshot, l egress.Listed) bool {
	for _, g := range egress.Gateways(snap, l.Egress, d.Alive) {
		if g.ID == d.Self {
			return true
		}
	}
	choice := egress.NewChoice(snap, egress.All(snap))
	for e := range cluster.Written[cluster.Endpoint](snap, d.Self) {
		if by, known := choice.Of(e); slices.Contains(l.Networks, e.Network) && (len(l.Labels) == 0 || by == l.Name || !known) {
			return true
		}
	}
	return false
}
