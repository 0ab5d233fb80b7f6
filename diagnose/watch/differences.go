package watch

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
)

// Differences are settings that are to be the same on all hosts and are not.
func Differences(nodes []api.Node, vxlan uint16) []api.Problem {
	return append(vxlanDifferences(nodes, vxlan), rangeDifferences(nodes)...)
}

// vxlanDifferences are ports of VXLAN that are to be the same on all hosts and are not.
func vxlanDifferences(nodes []api.Node, vxlan uint16) (list []api.Problem) {
	for _, n := range nodes {
		if n.Alive && n.VXLANPort != vxlan && n.VXLANPort != 0 {
			list = append(list, api.Problem{
				Code: api.SettingsDiffer,
				What: fmt.Sprintf("the UDP port of VXLAN is %d here and %d on %s: containers of the two do not reach each other", vxlan, n.VXLANPort, n.Name),
				Do:   "set GRAPEVINE_VXLAN_PORT to the same on every host",
			})
		}
	}
	return list
}

// rangeDifferences says that this host gets networks' prefixes from another range than the others
// do, where not more of them do as it does: so the one host that is set otherwise says it, and of two
// both. Hosts of older programs do not tell theirs.
func rangeDifferences(nodes []api.Node) (list []api.Problem) {
	for _, s := range []struct {
		name, unset string
		of          func(api.Node) netip.Prefix
	}{
		{"GRAPEVINE_CIDR4", "", func(n api.Node) netip.Prefix { return n.CIDR4 }},
		{"GRAPEVINE_CIDR6", "not set", func(n api.Node) netip.Prefix { return n.CIDR6 }},
	} {
		hosts := map[netip.Prefix][]string{}
		var own netip.Prefix
		for _, n := range nodes {
			if n.Self {
				own = s.of(n)
			}
			if n.Alive && n.CIDR4.IsValid() {
				hosts[s.of(n)] = append(hosts[s.of(n)], n.Name)
			}
		}
		text := func(p netip.Prefix) string {
			if !p.IsValid() {
				return s.unset
			}
			return p.String()
		}
		var others []netip.Prefix
		for p, names := range hosts {
			if p != own && len(names) >= len(hosts[own]) {
				others = append(others, p)
			}
		}
		slices.SortFunc(others, func(a, b netip.Prefix) int {
			return cmp.Or(cmp.Compare(len(hosts[b]), len(hosts[a])), a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
		})
		for _, p := range others {
			slices.Sort(hosts[p])
			list = append(list, api.Problem{
				Code: api.SettingsDiffer,
				What: fmt.Sprintf("%s is %s here and %s on %s: this host takes the prefixes of new networks from elsewhere", s.name, text(own), text(p), words.SomeHosts(hosts[p], len(nodes))),
				Do:   "set it to the same on every host, and restart the agents where it was not; networks that there are stay as they are",
			})
		}
	}
	return list
}
