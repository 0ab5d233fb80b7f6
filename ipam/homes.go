package ipam

import (
	"net/netip"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/ring"
)

// homes says who is to have what a host owns that goes for good: each block goes back to the
// owner of the claim around it, from which it was cut, if that one may have it, and else to
// heir. Otherwise each host that comes and goes would leave the shares of the networks that
// live on in smaller pieces, and on all hosts more flows and routes.
//
// Lines of the books go with the numbers that they are of: to the heir.
func homes(r *ring.Ring, goes, heir cluster.NodeID, may func(cluster.NodeID) bool) map[cluster.NodeID][]netip.Prefix {
	out := map[cluster.NodeID][]netip.Prefix{}
	var open []ring.Claim // the claims around the next one, the narrowest last
	for c := range r.Claims() {
		for len(open) > 0 && !within(c.Block, open[len(open)-1].Block) {
			open = open[:len(open)-1]
		}
		if own := ownPart(r, c); c.Owner == goes && len(own) > 0 {
			home := heir
			if h := homeAround(open, goes); h != "" && h != Commons && may(h) && !inABook(c.Block) {
				home = h
			}
			out[home] = append(out[home], own...)
		}
		open = append(open, c)
	}
	for home := range out {
		out[home] = ring.Union(out[home])
	}
	return out
}

// homeAround is the owner of the narrowest claim that is not of the one who goes, "" if there is none.
func homeAround(open []ring.Claim, goes cluster.NodeID) cluster.NodeID {
	for i := len(open) - 1; i >= 0; i-- {
		if open[i].Owner != goes {
			return open[i].Owner
		}
	}
	return ""
}

func inABook(p netip.Prefix) bool {
	_, _, is := bookOf(p)
	return is
}
