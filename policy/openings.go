package policy

import (
	"cmp"
	"net/netip"
	"slices"
)

// Opening is an address that an egress rule of names is about, since a local endpoint was told it when it asked for one of
// these. Of one priority there is at most one between two addresses.
type Opening struct {
	Rule     uint32 // one of those that name it
	Priority int
	Action   Action // of all rules of this priority
	Endpoint string
	From, To netip.Addr
	Past     bool // only connections go on that are open
	AnyPort  bool
	Ports    []PortRange
}

// Openings are the addresses that answers open. They are in no guard's print: what comes and goes leaves connections as
// they are.
func (c Compiled) Openings(answers []Answer) (list []Opening) {
	if len(answers) == 0 {
		return nil
	}
	rules := c.byName(Accept, Pass, Drop, Reject)
	if len(rules) == 0 {
		return nil
	}
	guards, classes := map[string]Guard{}, map[netip.Addr]uint32{} // of these alone: others in rules may be many
	for _, g := range c.Guards {
		if g.Egress {
			guards[g.Endpoint] = g
			for _, a := range g.Addrs {
				classes[a] = 0
			}
		}
	}
	for _, cl := range c.Classes {
		for _, a := range cl.Addrs {
			if _, ours := classes[a]; ours {
				classes[a] = cl.ID
			}
		}
	}
	for _, a := range answers {
		for _, from := range guards[a.Endpoint].Addrs {
			for _, r := range rules {
				if a.Past && r.Action != Accept && r.Action != Pass {
					continue
				}
				if from.Is4() == a.Addr.Is4() && slices.Contains(r.Subjects, classes[from]) && slices.ContainsFunc(r.Domains, func(d Domain) bool { return d.Matches(a.Name) }) {
					list = append(list, Opening{Rule: r.ID, Priority: r.Priority, Action: r.Action, Endpoint: a.Endpoint, From: from, To: a.Addr, Past: a.Past, AnyPort: r.AnyPort, Ports: r.Ports})
				}
			}
		}
	}
	slices.SortFunc(list, func(a, b Opening) int { return cmp.Or(a.compare(b), cmp.Compare(a.Rule, b.Rule)) })
	return joined(list)
}

// compare says nothing of what two openings let through.
func (o Opening) compare(p Opening) int {
	past := 0
	if o.Past != p.Past {
		if past = 1; p.Past {
			past = -1
		}
	}
	return cmp.Or(cmp.Compare(o.Endpoint, p.Endpoint), o.From.Compare(p.From), o.To.Compare(p.To), cmp.Compare(o.Priority, p.Priority), past)
}

// joined has one opening for those between two addresses at one priority.
func joined(list []Opening) (out []Opening) {
	for _, o := range list {
		if n := len(out) - 1; n >= 0 && out[n].compare(o) == 0 {
			if out[n].AnyPort = out[n].AnyPort || o.AnyPort; out[n].AnyPort {
				out[n].Ports = nil
			} else {
				out[n].Ports = compactPorts(slices.Concat(out[n].Ports, o.Ports))
			}
			continue
		}
		out = append(out, o)
	}
	return out
}

// byName are the rules of names that do one of these.
func (c Compiled) byName(actions ...Action) (rules []CompiledRule) {
	for _, r := range c.Rules {
		if r.Direction == Egress && slices.Contains(actions, r.Action) && len(r.Domains) > 0 {
			rules = append(rules, r)
		}
	}
	return rules
}

// Named are the names by which rules let local endpoints reach others, by endpoint.
func (c Compiled) Named() map[string][]Domain {
	rules := c.byName(Accept, Pass)
	if len(rules) == 0 {
		return nil
	}
	subjects := map[uint32][]Domain{}
	for _, r := range rules {
		for _, s := range r.Subjects {
			subjects[s] = append(subjects[s], r.Domains...)
		}
	}
	of := map[netip.Addr][]Domain{}
	for _, cl := range c.Classes {
		for _, a := range cl.Addrs {
			if d := subjects[cl.ID]; len(d) > 0 {
				of[a] = d
			}
		}
	}
	named := map[string][]Domain{}
	for _, g := range c.Guards {
		if len(g.Addrs) > 0 && g.Egress && len(of[g.Addrs[0]]) > 0 {
			named[g.Endpoint] = of[g.Addrs[0]]
		}
	}
	return named
}
