package follow

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/overlay/gateway"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// routesTaken names the routing rules that lead packets elsewhere that are gv0's: they come
// before grapevine's own. The kernel is asked each time.
func (r *Follower) routesTaken(snap *cluster.Snapshot) (list []api.Problem) {
	barred := map[netip.Prefix]bool{}
	if r.Watcher != nil {
		barred, _ = r.Judge(snap)
	}
	network := map[netip.Prefix]string{}
	var subnets []netip.Prefix
	for s := range cluster.All[cluster.Subnet](snap) {
		if !barred[s.Prefix] {
			network[s.Prefix] = s.Network
			subnets = append(subnets, s.Prefix)
		}
	}
	if len(subnets) == 0 {
		return nil
	}
	for _, p := range pipeline.HostRanges {
		if !barred[p] {
			subnets = append(subnets, p)
		}
	}
	for _, t := range gateway.TakenBefore(subnets, r.cfg.Underlay) {
		list = append(list, takenProblem(t, network))
	}
	closed := snap.Closed(r.cfg.Self)
	leaving := slices.DeleteFunc(subnets, func(p netip.Prefix) bool { return network[p] == "" || slices.Contains(closed, p) })
	for _, t := range gateway.TakenToOutside(leaving) {
		list = append(list, outsideProblem(t, network))
	}
	return append(list, r.outsideLost(leaving)...)
}

// outsideLost says that this host has no route to the outside any more, which its containers had with it. A host that never had one since
// its agent began is meant so.
func (r *Follower) outsideLost(leaving []netip.Prefix) (list []api.Problem) {
	for _, f := range []struct {
		name, ip string
		v6       bool
		had      *atomic.Bool
	}{{"IPv4", "ip", false, &r.hadOutside4}, {"IPv6", "ip -6", true, &r.hadOutside6}} {
		if !slices.ContainsFunc(leaving, func(p netip.Prefix) bool { return p.Addr().Is6() == f.v6 }) {
			continue
		}
		if gateway.WayOut(f.v6) {
			f.had.Store(true)
		} else if f.had.Load() {
			list = append(list, api.Problem{
				Code: api.OutsideLost,
				What: fmt.Sprintf("this host has no route to the outside by %s any more: its containers do not reach it either", f.name),
				Do:   fmt.Sprintf("`%s route` shows what it has; have whatever set the default route (DHCP, NetworkManager, networkd, router advertisements) set it again", f.ip),
			})
		}
	}
	return list
}

// outsideProblem names the routing rule that drops what containers send to the outside.
func outsideProblem(t gateway.Taken, network map[netip.Prefix]string) api.Problem {
	ip := "ip"
	if t.V6 {
		ip = "ip -6"
	}
	return api.Problem{
		Code: api.RouteTaken,
		What: fmt.Sprintf("the routing rule %d (%s) of this host drops what containers of %s send to the outside: they do not reach it", t.At, t.Rule, strings.Join(subnetsOf(t, network), ", ")),
		Do:   fmt.Sprintf("have whatever makes the rule leave these prefixes out; `%s rule add priority %d iif %s lookup main` puts the main table before it until the next boot", ip, max(t.At-1, 1), gateway.Port),
	}
}

// subnetsOf are those of the rule, for people, the first of them by name.
func subnetsOf(t gateway.Taken, network map[netip.Prefix]string) (of []string) {
	for _, s := range t.Subnets {
		if name := network[s]; name != "" {
			of = append(of, fmt.Sprintf("network %s's %s", name, s))
		} else {
			of = append(of, fmt.Sprintf("%s, where the hosts are that containers answer", s))
		}
	}
	const most = 3
	if more := len(of) - most; more > 0 {
		of = append(of[:most], fmt.Sprintf("%d more", more))
	}
	return of
}

// secureTaken names the routing rule that leads elsewhere what is for the VTEPs inside WireGuard, which the main table has.
func (r *Follower) secureTaken(snap *cluster.Snapshot) (list []api.Problem) {
	if self, _ := cluster.Get[cluster.Node](snap, string(r.cfg.Self)); !self.Encrypts() && (self.SecureKey() == nil || !snap.Encrypted()) {
		return nil
	}
	for _, t := range gateway.TakenFromMain(cluster.SecureRange, link.WireGuard) {
		list = append(list, api.Problem{
			Code: api.RouteTaken,
			What: fmt.Sprintf("the routing rule %d (%s) comes before that of the main table and leads %s elsewhere (%s), where hosts that encrypt have their VTEPs: nothing of what is to be encrypted is sent to other hosts, since it would go in the clear", t.At, t.Rule, cluster.SecureRange, t.Leads),
			Do:   fmt.Sprintf("`ip -6 rule add priority %d to %s lookup main` puts the route to %s before it until the next boot; for good, have whatever makes the rule leave this prefix out", max(t.At-1, 1), cluster.SecureRange, link.WireGuard),
		})
	}
	return list
}

func takenProblem(t gateway.Taken, network map[netip.Prefix]string) api.Problem {
	ip := "ip"
	if t.V6 {
		ip = "ip -6"
	}
	of := subnetsOf(t, network)
	do := fmt.Sprintf("`%s rule add priority %d lookup %d` puts grapevine's routes, which are those of its networks only, before it until the next boot; for good, have whatever makes the rule leave these prefixes out", ip, max(t.At-1, 1), gateway.Table)
	switch {
	case t.At <= 1:
		do = "give the rule a priority between 2 and 32766, and then grapevine's routes one before it: `" + ip + fmt.Sprintf(" rule add priority 1 lookup %d`", gateway.Table)
	case t.Table == tailscaleTable:
		do += " (Tailscale: `tailscale set --accept-routes=false`, or no exit node)"
	case t.Table == unix.RT_TABLE_MAIN:
		do += ", or give it a priority after 32000"
	}
	return api.Problem{Code: api.RouteTaken, What: fmt.Sprintf("the routing rule %d (%s) comes before grapevine's 32000 and leads %s elsewhere (%s): %s do not get there",
		t.At, t.Rule, strings.Join(of, ", "), t.Leads, packetsOf(t.Of)), Do: do}
}

// tailscaleTable is the routing table that Tailscale keeps its routes in.
const tailscaleTable = 52

func packetsOf(ways []gateway.Way) string {
	var out []string
	for _, w := range ways {
		switch w {
		case gateway.FromHost:
			out = append(out, "this host's packets")
		case gateway.FromAddress:
			out = append(out, "packets from this host's own address")
		case gateway.FromInterface:
			out = append(out, "connections to published ports and answers from outside")
		}
	}
	if len(out) > 1 {
		last := len(out) - 1
		return strings.Join(out[:last], ", ") + " and " + out[last]
	}
	return strings.Join(out, "")
}
