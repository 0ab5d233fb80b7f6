package view

import (
	"cmp"
	"slices"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
)

// Shared lists the names, on each network, that containers of more than one host answer to: a
// service that runs on several, or one that was started a second time by mistake.
func Shared(s *cluster.Snapshot) []api.SharedName {
	type key struct{ network, name string }
	hosts := map[key][]string{}
	for e := range cluster.All[cluster.Endpoint](s) {
		host := ""
		for i, n := range append([]string{e.Name}, e.AllAliases()...) {
			if n == "" || i > 0 && n == e.Name {
				continue
			}
			if host == "" {
				host = s.HostName(e.Host)
			}
			if k := (key{e.Network, n}); !slices.Contains(hosts[k], host) {
				hosts[k] = append(hosts[k], host)
			}
		}
	}
	out := []api.SharedName{}
	for k, list := range hosts {
		if len(list) > 1 {
			slices.Sort(list)
			out = append(out, api.SharedName{Network: k.network, Name: k.name, Hosts: list})
		}
	}
	slices.SortFunc(out, func(a, b api.SharedName) int {
		return cmp.Or(cmp.Compare(a.Network, b.Network), cmp.Compare(a.Name, b.Name))
	})
	return out
}
