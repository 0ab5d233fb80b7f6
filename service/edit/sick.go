package edit

import (
	"fmt"
	"iter"
	"slices"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/service"
	"github.com/grapevine-net/grapevine/service/expose"
)

// Problems says of which services, and of which ports of all hosts, all containers are paused or not healthy. A service concerns the hosts
// that have containers on its network, or answer a port for it.
func (d Desk) Problems(snap *cluster.Snapshot) (list []api.Problem) {
	any := false
	for e := range cluster.All[cluster.Endpoint](snap) {
		any = any || e.Sick
	}
	if !any { // as ever: nobody is asked more
		return nil
	}
	problem := func(who string, replicas []service.Replica, do string) {
		list = append(list, api.Problem{Code: api.ServiceSick, What: who + ": " + unready(snap, replicas), Do: do})
	}
	const do = "`docker unpause` them, or see with `docker inspect` on their hosts what their HEALTHCHECK says"
	for _, s := range d.listed() {
		if !s.Void && sick(s.Replicas) && d.concerned(snap, s) {
			problem("service "+s.Key().ID, s.Replicas, do+"; `grapevine service show "+s.Key().ID+"` lists them")
		}
	}
	for x := range d.labelled(snap) {
		if sick(x.Replicas) {
			problem(fmt.Sprintf("port %s for %s", x.Text(), x.Name()), x.Replicas, do)
		}
	}
	if more := len(list) - mostNotes; more > 0 {
		list = append(list[:mostNotes], api.Problem{Code: api.ServiceSick, What: fmt.Sprintf("of %d more services or exposed ports all containers are paused or not healthy", more), Do: do + "; see `grapevine service list`"})
	}
	return list
}

// concerned reports whether this host has to do with a service.
func (d Desk) concerned(snap *cluster.Snapshot, s service.Listed) bool {
	if len(s.Exposed) > 0 && d.Heeds != nil && d.Heeds(expose.Exposure{Network: s.Network, Service: s.Name}) {
		return true
	}
	for e := range cluster.All[cluster.Endpoint](snap) {
		if e.Host == d.Self && e.Network == s.Network {
			return true
		}
	}
	return false
}

// labelled are the ports that labels ask for and this host answers, with what is known of the containers' hosts.
func (d Desk) labelled(snap *cluster.Snapshot) iter.Seq[expose.Exposure] {
	return func(yield func(expose.Exposure) bool) {
		if d.Heeds == nil {
			return
		}
		for _, x := range expose.All(snap) {
			if x.Service != "" || x.Loses != "" || !d.Heeds(x) {
				continue
			}
			for i, r := range x.Replicas {
				if d.Hosts != nil {
					x.Replicas[i].Standing = d.Hosts(r.Host)
				}
			}
			if x.Replicas = service.Choose(x.Replicas); !yield(x) {
				return
			}
		}
	}
}

// reached are the replicas on hosts that answer, or are in doubt.
func reached(replicas []service.Replica) []service.Replica {
	return slices.DeleteFunc(slices.Clone(replicas), func(r service.Replica) bool { return r.Standing == cluster.Gone })
}

// unreadied reports whether there are replicas, and none of them is ready.
func unreadied(replicas []service.Replica) bool {
	there := reached(replicas)
	return len(there) > 0 && !slices.ContainsFunc(there, func(r service.Replica) bool { return !r.Unready })
}

// sick reports whether all replicas are paused or not healthy: one that starts, or is being stopped, will be something else by itself.
func sick(replicas []service.Replica) bool {
	there := reached(replicas)
	return len(there) > 0 && !slices.ContainsFunc(there, func(r service.Replica) bool { return !r.Sick })
}

// unready says that none of a service's containers is ready.
func unready(snap *cluster.Snapshot, replicas []service.Replica) string {
	if sick(replicas) {
		return fmt.Sprintf("its containers are all paused or not healthy (%s): connections are led there all the same, and may wait for ever", some(snap, replicas))
	}
	return fmt.Sprintf("its containers all start, or are being stopped, paused or not healthy (%s): connections are led there all the same", some(snap, replicas))
}
