package membership

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/gossip"
)

// foreignProblems are hosts of other clusters that meet this one: each with which of the two is
// the one to leave.
func (m *Member) foreignProblems(hosts int) (list []api.Problem) {
	for _, f := range m.gossip.Foreigners() {
		list = append(list, foreignProblem(f, hosts, m.guest(), len(m.cfg.Join) > 0))
	}
	return list
}

// guest says that this host was told to come to others: another one stands first in its list.
func (m *Member) guest() bool {
	own, err := m.cfg.Own()
	if err != nil || len(m.cfg.Join) == 0 {
		return false
	}
	return !slices.Contains(append(own, m.to.Addr, m.cfg.Advertise.Addr()), m.cfg.Join[0].Addr())
}

// foreignProblem has the smaller cluster dissolve; of two that are as large, that of the host
// that was told to come to the other. Both sides say the same.
func foreignProblem(f gossip.Foreign, hosts int, guest, joins bool) api.Problem {
	name := cmp.Or(f.Name, f.ID)
	where := ""
	if f.Addr.IsValid() && f.Addr != (netip.Addr{}) {
		where = fmt.Sprintf(" (%s)", f.Addr)
	}
	p := api.Problem{Code: api.ClusterOther, What: fmt.Sprintf("host %s%s belongs to another cluster, of %s, than this one, of %s: until one of the two leaves, their containers do not reach each other",
		name, where, words.Plural(max(f.Hosts, 1), "host"), words.Plural(hosts, "host"))}
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
