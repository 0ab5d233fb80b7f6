package metrics

import (
	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/observe/drops"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// counted sums what the switch's flows counted. A flow goes with its container or its network, and
// its counter with it; the sums stay, so that nothing that Prometheus takes for a counter falls. What
// is counted while a network is among the others stays theirs.
type counted struct {
	last    map[flowKey]count
	drops   map[drops.Kind]count
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
		c.drops, c.traffic = map[drops.Kind]count{}, map[[2]string]count{}
		for _, d := range drops.All() { // each is there from the start, with 0
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
		if drops.Is(fl.Table, fl.Actions) {
			d := drops.Of(fl.Cookie)
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
