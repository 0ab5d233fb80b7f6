package follow

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
	"github.com/grapevine-net/grapevine/reach"
)

// barredHosts are the ranges in which hosts have addresses of their own, from which they speak
// to containers, that this host cannot take, and why.
func (r *Follower) barredHosts(snap *cluster.Snapshot) map[netip.Prefix]error {
	return r.model(snap).Barred(pipeline.HostRanges, false)
}

// hostRangeProblems says which hosts have something else in those ranges, which stays theirs.
func (r *Follower) hostRangeProblems(snap *cluster.Snapshot) (list []api.Problem) {
	const do = "have the other thing elsewhere, if hosts are to reach containers by their addresses; what containers send each other is not concerned"
	if len(snap.Subnets()) == 0 {
		return nil
	}
	here := r.barredHosts(snap)
	for _, p := range pipeline.HostRanges {
		if err := here[p]; err != nil {
			list = append(list, api.Problem{
				Code: api.HostRangeBarred,
				What: fmt.Sprintf("this host does not take %s, from which hosts speak to containers of other hosts: %v, which stays as it is. It does not reach other hosts' containers, nor other hosts its own", p, err), Do: do,
			})
		}
	}
	for n := range cluster.All[cluster.Node](snap) {
		if n.ID == r.cfg.Self {
			continue
		}
		for _, c := range reach.Judge(reach.Of(n), pipeline.HostRanges, nil) {
			list = append(list, api.Problem{
				Code: api.HostRangeBarred,
				What: fmt.Sprintf("host %s does not take %s, from which hosts speak to containers of other hosts: it has %s. This host does not reach its containers", cmp.Or(n.Name, string(n.ID)), c.Subnet, c.By), Do: do,
			})
		}
	}
	return list
}
