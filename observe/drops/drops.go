// Package drops says of the flows that drop packets which kind of drop they are: what is told of it, and
// what is to be done about it. It is pure; the metrics and `grapevine drops` say the same by it.
package drops

import (
	"cmp"
	"slices"

	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// Class is what a drop says of its sender.
type Class string

// The classes.
const (
	Meant Class = "meant" // isolation at work
	Alien Class = "alien" // nobody honest sends these
	Noise Class = "noise" // every host has thousands
)

// Kind is a kind of drop. Reason is its name, which metrics have too and which stays the same.
type Kind struct {
	Reason string
	Class  Class
	// From and To say who sent such packets and where to, as far as the kind alone says it.
	From, To string
	Why, Do  string
}

// Drops that belong to no object, by their reasons. What is noise needs nobody to do anything.
var reasons = map[pipeline.Reason]Kind{
	pipeline.DropVLAN: {"vlan", Noise, "", "", "the frame has a VLAN tag", ""},
	pipeline.DropUnknownVTEP: {"unknown-vtep", Alien, "a host of no cluster", "this host", "what hosts send each other came from an address that no host of the cluster has",
		"if that is a host of yours: `grapevine nodes` there and here; else let a firewall keep it from the UDP port that `grapevine status` names"},
	pipeline.DropUnwrapped: {"unwrapped", Noise, "this host's kernel", "the tunnel's port", "it is of no tunnel: reports of multicast groups and the like, which a kernel sends out of each of its devices", ""},
	pipeline.DropTunnelSource: {"tunnel-source", Alien, "another host", "", "a host sent what none of its containers can have sent: the source is in no range",
		"on the other hosts: `grapevine drops` names a container that spoofs; `grapevine status` a host that knows less than this one"},
	pipeline.DropUnknownPort: {"unknown-port", Noise, "", "", "it came by a port of the switch that no container has, as when one has just gone", ""},
	pipeline.DropLinkLocal:   {"link-local", Noise, "containers", "link-local", "an address probe, a router solicitation or the like", ""},
	pipeline.DropARP:         {"arp", Noise, "containers", "", "ARP about an address of no network", ""},
	pipeline.DropTransit: {"no-endpoint", Meant, "another host", "no container here", "it came by the tunnel for a container that is not here: it has gone or moved",
		"if the count goes on rising: `grapevine status` on both hosts"},
	pipeline.DropMulticast: {"multicast", Noise, "containers", "multicast, broadcast", "nobody is a member of the group, or the network carries no multicast and no broadcast (`-o multicast=on`)", ""},
	pipeline.DropForgedTunnel: {"forged-tunnel", Alien, "a container", "a host's VXLAN port", "a container sent VXLAN, which would look like this host's",
		"find the container that sends VXLAN of its own: let it use a port other than the cluster's"},
	pipeline.DropNoRoute: {"no-route", Meant, "containers", "outside", "the network is internal: nothing leads out of it",
		"if it is to get out: attach the container to a network without --internal as well"},
	pipeline.DropNoEgress: {"no-egress", Meant, "containers", "outside", "their network has an egress address, which no host holds now, or which is of the other family",
		"`grapevine egress list` and `grapevine status` say which gateway is to hold it, and why none does"},
	pipeline.DropOtherAddress: {"other-address", Meant, "containers", "outside", "their network has an egress address, and they would have left with another one",
		"if the count goes on rising: another program's NAT on the host that holds the address comes first: `nft list ruleset` and `iptables -t nat -S` there name it (nat in postrouting, priority below 100)"},
	pipeline.DropShadow: {"exposed-port", Meant, "containers", "outside", "they would have left by a port of this host that is exposed, and heard what is for its service",
		"if the count goes on rising: another program's NAT on this host comes before grapevine's: `nft list ruleset` and `iptables -t nat -S` name it; or let the container send from another port"},
	pipeline.DropClaimed: {"claimed-address", Alien, "somebody outside", "this host, containers", "it came from outside with the address of a container, of a gateway or of a host in the cluster",
		"find who on the network forges it; a machine outside that has such an address: let this host have a route to it, and the cluster's network that is in its place gives way"},
	pipeline.DropPosing: {"came-as-host", Meant, "who calls a published port of this host", "containers", "another program's NAT gave it the gateway's address, by which policies know this host",
		"if the count goes on rising: `nft list ruleset` and `iptables -t nat -S` name the rule (nat in postrouting, priority below 100); let it leave out what goes to gv0"},
	pipeline.DropUntold: {"labels-not-known", Meant, "containers", "outside", "an egress of their network asks for labels, and theirs are not known",
		"if the count goes on rising: `grapevine egress show` names the containers"},
	pipeline.DropShut: {"network-not-told", Meant, "this host", "a network", "this host has no Docker, and is not told to reach the network",
		"if it is to reach it: add the network to GRAPEVINE_NETWORKS here"},
	pipeline.DropOtherNetwork: {"other-network", Meant, "containers", "another network", "the two are on different networks",
		"if they are to meet: `grapevine network join NETWORK NETWORK`, or `docker network connect NETWORK CONTAINER`"},
	pipeline.DropNoDestination: {"no-destination", Noise, "", "", "the place to which it goes is just coming or going", ""},
	pipeline.DropLoopback:      {"loopback", Alien, "a container", "127.0.0.0/8, ::1", "the destination is a host's own loopback address", "find the container that sends to it: nobody honest does"},
	pipeline.DropND:            {"neighbour-discovery", Noise, "containers", "", "neighbour discovery that asks for no address of a network", ""},
	pipeline.DropHostAddress: {"host-address", Alien, "", "an address of hosts", "it has an address by which hosts speak to each other's containers, and which is another's",
		"find the container that has such an address: nobody honest does"},
	pipeline.DropHidden: {"hidden-tunnel", Alien, "a container", "a host", "a fragment or a tunnel to a host of the cluster, out of which VXLAN could come",
		"large UDP to a host's own service is cut into fragments: let it be smaller; else find who sends it"},
	pipeline.DropGossip:  {"gossip-port", Alien, "a container", "a host's gossip port", "a container spoke to the port by which hosts hear each other", "find the container that scans or attacks hosts"},
	pipeline.DropInvalid: {"no-connection", Noise, "", "", "it fits no connection", ""},
	pipeline.DropMidstream: {"unseen-connection", Noise, "", "", "TCP of a connection that nobody saw begin, and whose ports do not say who called whom",
		""},
	pipeline.DropEgress: {"egress-policy", Meant, "a container with rules", "whom it calls", "no policy lets it be sent",
		"`grapevine policy explain FROM TO:PORT` names the rules, and says whether a name has opened the address; `grapevine policy list` the policies"},
	pipeline.DropIngress: {"ingress-policy", Meant, "a caller", "a container with rules", "no policy lets it in",
		"`grapevine policy explain FROM TO:PORT` names the rules; `grapevine policy list` the policies"},
	pipeline.DropForgedClear: {"forged-in-the-clear", Alien, "somebody on the wire", "this host", "it is VXLAN that was not encrypted, or claims a container's address, and this host encrypts",
		"a host of yours that does not encrypt: `grapevine status` names it; else find who on the network sends it"},
	pipeline.DropClear: {"in-the-clear", Meant, "this host", "other hosts", "it would have left this host in the clear",
		"if the count goes on rising: `grapevine status` says what is wrong with WireGuard, IPsec or gv0"},
	pipeline.DropByKey: {"refused-by-wireguard", Alien, "somebody on the wire", "this host", "WireGuard knows nobody by that key, has had the packet before or knows no session of it, or its source is another's",
		"for some seconds after WireGuard began here, as at a boot, others still send by sessions of before; a host that was forgotten and a client that was removed go on trying: end them there; else somebody tries the UDP ports of WireGuard"},
	pipeline.DropNobodys: {"nobodys-address", Noise, "another host", "", "it came in WireGuard without VXLAN, and its source is nobody's at that moment, or it is a packet that no host sends so",
		""},
	pipeline.DropUnwound: {"not-handed-over", Noise, "another host", "", "it came in WireGuard without VXLAN, and this host had no memory to hand it to the switch", ""},
	pipeline.DropNotEncrypted: {"not-encrypted", Alien, "", "", "it is for an encrypted network and came in the clear, or is of one and would have left so",
		"a host that cannot encrypt: `grapevine status` names it; else find who on the network sends it"},
	pipeline.DropCrowd: {"too-many-connections", Meant, "containers", "", "it begins a connection with a container that policies are about, and who sends it has more than its share of those that this host has room for",
		"`grapevine status` names who has so many, and `grapevine traffic` whom it calls"},
	pipeline.DropFull: {"no-room-for-connections", Meant, "", "", "it begins a connection with a container that policies are about, and this host has room for no more",
		"`grapevine traffic` says who calls whom; more room: `sysctl net.netfilter.nf_conntrack_max`, of which half is for these"},
	pipeline.DropNotExposed: {"not-exposed", Noise, "", "", "it came from outside by another host, and fits no connection to an exposed port", ""},
	pipeline.DropUnheard: {"address-unheard", Meant, "", "", "one of the two has the address of a former container, and the other one's host may not have heard of it yet: it would take the one for the other",
		"it ends in a moment; if the count goes on rising: `grapevine status` on both hosts names the container and the host that has not heard"},
	pipeline.DropTwoClasses: {"address-of-two", Noise, "", "", "two containers of different labels have the address", ""},
}

// Drops that belong to an object.
var (
	Spoofed = Kind{"spoofed", Alien, "", "", "its source is not an address of the container that sent it", // or of one, by the gateway
		"look what runs in the container: an address or a MAC was changed in it, or it routes for others"}
	WrongVTEP = Kind{"wrong-vtep", Alien, "another host", "", "its source is in the range of another host than the one that sent it",
		"`grapevine status` on all hosts: one knows less, or is not what it says"}
	Denied = Kind{"policy-rule", Meant, "", "", "a rule of a policy denies it", "`grapevine policy explain FROM TO:PORT` says more of the rule, and whether a name has opened the address"}
	// Unowned is for an address of a network that nobody has, or a container's own question for its own.
	Unowned = Kind{"no-such-address", Noise, "containers", "", "no container has the address", ""}
	Unknown = Kind{"unknown", Noise, "", "", "this version does not know the reason: the agent is of another one", ""}
)

// All are all kinds, by their reasons.
func All() []Kind {
	list := []Kind{Spoofed, WrongVTEP, Denied, Unowned, Unknown}
	for _, k := range reasons {
		list = append(list, k)
	}
	slices.SortFunc(list, func(a, b Kind) int { return cmp.Compare(a.Reason, b.Reason) })
	return list
}

// Is reports whether a flow of a table drops. A rule that rejects does, whatever its sender is told.
func Is(table uint8, actions string) bool { return pipeline.Denies(table, actions) }

// Of is the kind of a flow that drops, by its cookie.
func Of(cookie uint64) Kind {
	c := pipeline.ParseCookie(cookie)
	switch {
	case c.Kind == pipeline.KindDrop:
		if k, ok := reasons[pipeline.Reason(c.Object)]; ok {
			return k
		}
		return Unknown
	case c.Stage == pipeline.SpoofGuard && c.Kind == pipeline.KindRoute:
		return WrongVTEP
	case c.Stage == pipeline.SpoofGuard:
		return Spoofed
	case c.Kind == pipeline.KindRule:
		k := Denied
		switch c.Stage {
		case pipeline.EgressPolicy, pipeline.EgressRules:
			k.From, k.To = "a container that it is about", "whom it calls"
		case pipeline.IngressPolicy, pipeline.IngressRules:
			k.From, k.To = "a caller", "a container that it is about"
		}
		return k
	case c.Stage == pipeline.Conntrack:
		return reasons[pipeline.DropLinkLocal]
	}
	return Unowned
}
