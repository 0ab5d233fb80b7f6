package watch

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/encap"
)

// Differences are settings that are to be the same on all hosts and are not.
func Differences(nodes []api.Node, wrapped encap.Kind, port uint16) []api.Problem {
	return append(wireDifferences(nodes, wrapped, port), rangeDifferences(nodes)...)
}

// wireDifferences are encapsulations, and their ports, that are to be the same on all hosts and are not.
func wireDifferences(nodes []api.Node, wrapped encap.Kind, port uint16) (list []api.Problem) {
	for _, n := range nodes {
		switch {
		case !n.Alive || n.VXLANPort == 0 && n.Encap == "":
		case n.Encap != wrapped.Mark():
			list = append(list, api.Problem{
				Code: api.EncapDiffers,
				What: fmt.Sprintf("what containers send is wrapped in %s here and in %s on %s: containers of the two do not reach each other, and nothing is sent there", wrapped.Name, cmp.Or(n.Encap, encap.VXLAN.Name), n.Name),
				Do:   "set GRAPEVINE_ENCAP to the same on every host",
			})
		case n.VXLANPort != port:
			list = append(list, api.Problem{
				Code: api.SettingsDiffer,
				What: fmt.Sprintf("the UDP port of %s is %d here and %d on %s: containers of the two do not reach each other", wrapped.Title, port, n.VXLANPort, n.Name),
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
