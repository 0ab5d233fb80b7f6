package metrics

import (
	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// counted sums what the switch's flows counted. A flow goes with its container or its network, and
// its counter with it; the sums stay, so that nothing that Prometheus takes for a counter falls. What
// is counted while a network is among the others stays theirs.
type counted struct {
	last    map[flowKey]count
	drops   map[drop]count
	traffic map[[2]string]count // by label and direction
}

type flowKey struct {
	table    uint8
	priority uint16
	match    string
}

type count struct{ packets, bytes uint64 }

func (c count) plus(d count) count { return count{c.packets + d.packets, c.bytes + d.bytes} }

// since is what came after before. A counter that fell is one that began anew.
func (c count) since(before count) count {
	if c.packets < before.packets || c.bytes < before.bytes {
		return c
	}
	return count{c.packets - before.packets, c.bytes - before.bytes}
}

// The directions, as containers see them.
const (
	sent     = "sent"
	received = "received"
)

// add takes in what the flows have counted since the last time. A switch that does not tell
// changes nothing.
func (c *counted) add(f Facts, label map[string]string) {
	if c.drops == nil {
		c.drops, c.traffic = map[drop]count{}, map[[2]string]count{}
		for _, d := range dropKinds {
			c.drops[d] = count{}
		}
	}
	if f.FlowsErr != nil {
		return
	}
	labelOf, there := map[string]string{}, map[string]bool{otherNetworks: true}
	for _, e := range f.Endpoints {
		if l, ok := label[e.Network]; ok {
			labelOf["endpoint "+e.ID] = l
		}
	}
	for _, n := range f.Networks {
		there[labelText(n.Name)] = true
	}
	now := make(map[flowKey]count, len(f.Flows))
	for _, fl := range f.Flows {
		key, n := flowKey{fl.Table, fl.Priority, fl.Match}, count{fl.Packets, fl.Bytes}
		now[key] = n
		more := n.since(c.last[key])
		if fl.Actions == "drop" {
			d := dropOf(fl)
			c.drops[d] = c.drops[d].plus(more)
		} else if l, ok := labelOf[fl.Object]; ok {
			if direction := directionOf(fl); direction != "" {
				k := [2]string{l, direction}
				c.traffic[k] = c.traffic[k].plus(more)
			}
		}
	}
	c.last = now
	for k := range c.traffic {
		if !there[k[0]] {
			delete(c.traffic, k) // a network's series go with it
		}
	}
}

// directionOf is "" for a flow that counts no packet of a container, or one that another flow counts.
func directionOf(fl api.Flow) string {
	switch pipeline.Stage(fl.Table) {
	case pipeline.SpoofGuard:
		return sent
	case pipeline.Forwarding:
		return received
	}
	return ""
}

// drop is why packets were dropped, and what that says of their sender.
type drop struct{ reason, class string }

// The classes.
const (
	meant = "meant" // isolation at work
	alien = "alien" // nobody honest sends these
	noise = "noise" // every host has thousands
)

// reasons are the drops that belong to no object.
var reasons = map[pipeline.Reason]drop{
	pipeline.DropVLAN:          {"vlan", noise},
	pipeline.DropUnknownVTEP:   {"unknown-vtep", alien},
	pipeline.DropTunnelSource:  {"tunnel-source", alien},
	pipeline.DropUnknownPort:   {"unknown-port", noise},
	pipeline.DropLinkLocal:     {"link-local", noise},
	pipeline.DropARP:           {"arp", noise},
	pipeline.DropTransit:       {"no-endpoint", meant},
	pipeline.DropMulticast:     {"multicast", noise},
	pipeline.DropForgedTunnel:  {"forged-tunnel", alien},
	pipeline.DropNoRoute:       {"no-route", meant},
	pipeline.DropOtherNetwork:  {"other-network", meant},
	pipeline.DropNoDestination: {"no-destination", noise},
	pipeline.DropLoopback:      {"loopback", alien},
	pipeline.DropND:            {"neighbour-discovery", noise},
	pipeline.DropHostAddress:   {"host-address", alien},
	pipeline.DropHidden:        {"hidden-tunnel", alien},
	pipeline.DropGossip:        {"gossip-port", alien},
	pipeline.DropInvalid:       {"no-connection", noise},
	pipeline.DropMidstream:     {"unseen-connection", noise},
	pipeline.DropEgress:        {"egress-policy", meant},
	pipeline.DropIngress:       {"ingress-policy", meant},
	pipeline.DropTwoClasses:    {"address-of-two", noise},
}

// Drops that belong to an object.
var (
	spoofed     = drop{"spoofed", alien}         // by a container, or of one by the gateway
	wrongVTEP   = drop{"wrong-vtep", alien}      // a source in another host's range
	denied      = drop{"policy-rule", meant}     // by a rule that denies; by none that accepts: egress-policy, ingress-policy
	unowned     = drop{"no-such-address", noise} // an address of a network that nobody has, or its own question for its own
	unknownDrop = drop{"unknown", noise}         // of an older or newer agent's flow
)

// dropKinds are all of them: each is there from the start, with 0.
var dropKinds = func() []drop {
	list := []drop{spoofed, wrongVTEP, denied, unowned, unknownDrop}
	for _, d := range reasons {
		list = append(list, d)
	}
	return list
}()

func dropOf(fl api.Flow) drop {
	c := pipeline.ParseCookie(fl.Cookie)
	switch {
	case c.Kind == pipeline.KindDrop:
		if d, ok := reasons[pipeline.Reason(c.Object)]; ok {
			return d
		}
		return unknownDrop
	case c.Stage == pipeline.SpoofGuard && c.Kind == pipeline.KindRoute:
		return wrongVTEP
	case c.Stage == pipeline.SpoofGuard:
		return spoofed
	case c.Kind == pipeline.KindRule:
		return denied
	case c.Stage == pipeline.Conntrack:
		return reasons[pipeline.DropLinkLocal]
	}
	return unowned
}
