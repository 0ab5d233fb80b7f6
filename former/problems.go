package former

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
)

// lasting is how long an endpoint waits for a host before status says so: ten times what it takes.
const lasting = 5 * time.Second

// Problems says which containers do not talk with which hosts yet, if that lasts.
func (k *Keeper) Problems(snap *cluster.Snapshot) (list []api.Problem) {
	waiting := k.Waiting(snap)
	k.mu.Lock()
	defer k.mu.Unlock()
	of := map[cluster.NodeID][]string{}
	for id, w := range waiting {
		if time.Since(k.since[id]) < lasting {
			continue
		}
		for _, host := range w.Hosts {
			of[host] = append(of[host], whose(snap, id))
		}
	}
	hosts := make([]cluster.NodeID, 0, len(of))
	for host := range of {
		hosts = append(hosts, host)
	}
	slices.Sort(hosts)
	for _, host := range hosts {
		names := of[host]
		slices.Sort(names)
		const most = 3
		text := strings.Join(names[:min(most, len(names))], ", ")
		if more := len(names) - most; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		name := snap.HostName(host)
		why := "it has not said yet that it has heard that"
		if a := k.asked[host]; a != nil && a.err != nil {
			why = "it does not answer: " + a.err.Error()
			if unknown(a.err) {
				why = "its agent is of an older version, and is taken to have heard of it in some seconds"
			}
		}
		list = append(list, api.Problem{
			Code: api.AddressUnheard,
			What: fmt.Sprintf("policies: host %s may take %s for the container that had the address before, so no packet of it passes between the two: %s", name, text, why),
			Do:   fmt.Sprintf("see that the agent on %s runs and that gossip passes (`grapevine doctor`); or give the container another address; if the host is gone for good: `grapevine forget %s`", name, name),
		})
	}
	return list
}

// whose is a container's name and addresses.
func whose(snap *cluster.Snapshot, endpoint string) string {
	e, _ := cluster.Get[cluster.Endpoint](snap, endpoint)
	var addrs []string
	for _, a := range e.Addrs {
		addrs = append(addrs, a.String())
	}
	name := e.Name
	if name == "" {
		name = fmt.Sprintf("endpoint %.12s", endpoint)
	}
	return fmt.Sprintf("container %s (%s)", name, strings.Join(addrs, ", "))
}

// Notes say why nothing passes between two addresses that policies may let talk.
func (k *Keeper) Notes(snap *cluster.Snapshot, from, to netip.Addr) (notes []string) {
	waiting := k.Waiting(snap)
	if len(waiting) == 0 {
		return nil
	}
	of := map[netip.Addr]cluster.Endpoint{}
	for e := range cluster.All[cluster.Endpoint](snap) {
		for _, a := range e.Addrs {
			if a == from || a == to {
				of[a] = e
			}
		}
	}
	for _, pair := range [][2]netip.Addr{{from, to}, {to, from}} {
		e, other := of[pair[0]], of[pair[1]].Host
		if slices.Contains(waiting[e.ID].Hosts, other) {
			notes = append(notes, fmt.Sprintf("nothing passes between %s and host %s now: another container had the address before, and the host has not said that it has heard who has it now", whose(snap, e.ID), snap.HostName(other)))
		}
	}
	return notes
}
