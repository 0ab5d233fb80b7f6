package overlay

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/cluster"
)

// hearers are the endpoints of all hosts that those here may send to by something else than an address of a subnet: on networks that this
// host has endpoints of, those with link-local addresses, and all where multicast is carried. The zero value is not read yet. What a plan
// reads is kept for the next one, since of many endpoints few change.
type hearers struct {
	here map[uint32]bool // numbers of the networks that this host has endpoints of
	all  map[string]hearer
}

// hearer is one of them.
type hearer struct {
	cluster.Endpoint
	linkLocals []netip.Addr
	casts      bool         // its network carries multicast
	groups     []netip.Addr // that its host says it is a member of
}

// follow has the hearers be those of a snapshot. changed are the keys that are not as they were; anew: all may be others.
func (h *hearers) follow(snap *cluster.Snapshot, t *topology, local []cluster.Endpoint, changed []cluster.Key, anew bool) {
	here := map[uint32]bool{}
	for _, e := range local {
		if n, known := t.network[e.Network]; known {
			here[n.VNID] = true
		}
	}
	if anew || h.all == nil || !maps.Equal(here, h.here) {
		h.here, h.all = here, map[string]hearer{}
		for e := range cluster.All[cluster.Endpoint](snap) {
			h.read(snap, t, e)
		}
		return
	}
	for _, k := range changed {
		if id := endpointOf(k); id != "" {
			delete(h.all, id)
			if e, there := cluster.Get[cluster.Endpoint](snap, id); there {
				h.read(snap, t, e)
			}
		}
	}
}

// endpointOf is the endpoint that a record is about, "" if it is about something else.
func endpointOf(k cluster.Key) string {
	switch k.Kind {
	case cluster.KindEndpoint:
		return k.ID
	case cluster.KindListen:
		id, _, _ := strings.Cut(k.ID, "/")
		return id
	}
	return ""
}

func (h *hearers) read(snap *cluster.Snapshot, t *topology, e cluster.Endpoint) {
	n, known := t.network[e.Network]
	if !known || !h.here[n.VNID] {
		return
	}
	one := hearer{Endpoint: e, linkLocals: linkLocals(e, n), casts: n.Multicast() && !e.IsClient()}
	if one.casts {
		l, _ := cluster.Get[cluster.Listen](snap, cluster.Listen{Endpoint: e.ID, Host: e.Host}.Key().ID)
		one.groups = l.Groups
	}
	if one.casts || len(one.linkLocals) > 0 {
		h.all[e.ID] = one
	}
}

// sorted are the hearers by ID.
func (h *hearers) sorted() []hearer {
	list := make([]hearer, 0, len(h.all))
	for _, id := range slices.Sorted(maps.Keys(h.all)) {
		list = append(list, h.all[id])
	}
	return list
}

// concern reports whether a record of a snapshot makes other hearers than there are: of an endpoint, or of what it is a member of.
func (h *hearers) concern(snap *cluster.Snapshot, k cluster.Key) bool {
	e, there := cluster.Get[cluster.Endpoint](snap, endpointOf(k))
	if !there {
		return false
	}
	n, _ := cluster.Get[cluster.Network](snap, e.Network)
	return h.here[n.VNID] && (n.Multicast() || k.Kind == cluster.KindEndpoint && len(e.LinkLocal) > 0)
}
