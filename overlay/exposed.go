package overlay

import (
	"github.com/grapevine-net/grapevine/overlay/pipeline"
	"github.com/grapevine-net/grapevine/service/expose"
)

// exposedOf are the ports of containers, here and elsewhere, that the outside reaches by every host. track says whether
// the switch tracks connections: one that does not cannot have answers go back by another host.
func exposedOf(all []expose.Exposure, t *topology, track bool) (list []pipeline.Exposed) {
	if !track {
		return nil
	}
	seen := map[pipeline.Exposed]bool{}
	for _, e := range all {
		n, known := t.network[e.Network]
		if e.Loses != "" || e.Closed || !known {
			continue
		}
		for _, r := range e.Replicas {
			for _, a := range r.Named() {
				x := pipeline.Exposed{Addr: a, UDP: e.UDP, Port: e.Target, VNID: n.VNID}
				if !seen[x] { // two ports of hosts may lead to one
					seen[x] = true
					list = append(list, x)
				}
			}
		}
	}
	return list
}

// Fronts are the ports that this host is to have for the outside, in order, whether it can answer them or not. What it
// does not heed, as labels of others' containers, has no say in how its own leave.
func Fronts(all []expose.Exposure, heeds func(expose.Exposure) bool) (ports []uint16) {
	for _, e := range all { // in order of ports
		if !e.Closed && (heeds == nil || heeds(e)) && (len(ports) == 0 || ports[len(ports)-1] != e.Port.Port) {
			ports = append(ports, e.Port.Port)
		}
	}
	return ports
}
