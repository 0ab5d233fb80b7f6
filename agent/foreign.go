package agent

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/gossip"
)

// foreignProblems are hosts of other clusters that meet this one: each with which of the two is
// the one to leave.
func (a *Agent) foreignProblems(hosts int) (list []api.Problem) {
	for _, f := range a.gossip.Foreigners() {
		list = append(list, foreignProblem(f, hosts, a.guest(), len(a.cfg.Join) > 0))
	}
	return list
}

// guest says that this host was told to come to others: another one stands first in its list.
func (a *Agent) guest() bool {
	own, err := ownAddresses()
	if err != nil || len(a.cfg.Join) == 0 {
		return false
	}
	return !slices.Contains(append(own, a.underlay.Addr, a.cfg.Advertise.Addr()), a.cfg.Join[0].Addr())
}

// foreignProblem has the smaller cluster dissolve; of two that are as large, that of the host
// that was told to come to the other. Both sides say the same.
func foreignProblem(f gossip.Foreign, hosts int, guest, joins bool) api.Problem {
	name := cmp.Or(f.Name, f.ID)
	where := ""
	if f.Addr.IsValid() && f.Addr != (netip.Addr{}) {
		where = fmt.Sprintf(" (%s)", f.Addr)
	}
	p := api.Problem{What: fmt.Sprintf("host %s%s belongs to another cluster, of %s, than this one, of %s: until one of the two leaves, their containers do not reach each other",
		name, where, plural(max(f.Hosts, 1), "host"), plural(hosts, "host"))}
	ours := cmp.Compare(hosts, max(f.Hosts, 1))
	others := func(n int) string {
		if n > 1 {
			return ", and so are the others of its cluster"
		}
		return ""
	}
	switch {
	case ours < 0 || ours == 0 && guest:
		p.Do = "this host is the one to leave" + others(hosts) + ": `grapevine leave`, then "
		if joins && guest {
			p.Do += "`grapevine join`"
		} else {
			p.Do += "start it with what `grapevine join-command` prints on " + name
		}
	default:
		p.Do = name + " is the one to leave" + others(f.Hosts) + ": on it, `grapevine leave`, then `grapevine join`, or what `grapevine join-command` prints here"
	}
	return p
}
