// Package needs answers what a screen of the page needs, out of what an agent lists: of a thousand hosts and their
// containers a screen shows some, and a browser that is sent all of them every two seconds does nothing else.
package needs

import (
	"cmp"
	"context"
	"math/big"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/ui"
)

// What a screen shows at most.
const (
	hostsAPage  = 24
	namedHosts  = 8  // up to so many the map has containers' names
	mostOfCell  = 13 // of which it has names: one more than it draws
	mostRows    = 300
	mostNear    = 60
	mostNames   = 1000
	mostOfHosts = 60 // of a network
	grain       = 1000
)

// Lists are what an agent lists.
type Lists struct {
	Nodes     func(context.Context) ([]api.Node, error)
	Networks  func(context.Context) ([]api.Network, error)
	Endpoints func(context.Context) ([]api.Endpoint, error)
}

// Asks are the questions that are answered by parts of the lists. None is asked anew before ten times as long has passed
// as its last answer took.
func (l Lists) Asks() map[string]ui.Ask {
	nodes, networks, endpoints := lately(l.Nodes), lately(l.Networks), lately(l.Endpoints)
	of := func(part func([]api.Endpoint, url.Values) any) ui.Ask {
		return func(ctx context.Context, q url.Values) (any, error) {
			list, err := endpoints(ctx)
			if err != nil {
				return nil, err
			}
			return part(list, q), nil
		}
	}
	return map[string]ui.Ask{
		"nodes": func(ctx context.Context, _ url.Values) (any, error) { return nodes(ctx) },
		"networks": func(ctx context.Context, _ url.Values) (any, error) {
			list, err := networks(ctx)
			return shortened(list), err
		},
		"map": func(ctx context.Context, q url.Values) (any, error) {
			hosts, err := nodes(ctx)
			if err != nil {
				return nil, err
			}
			list, err := endpoints(ctx)
			if err != nil {
				return nil, err
			}
			page, _ := strconv.Atoi(q.Get("page"))
			return MapOf(hosts, list, page), nil
		},
		"containers": func(ctx context.Context, q url.Values) (any, error) {
			list, err := endpoints(ctx)
			if err != nil {
				return nil, err
			}
			if id := q.Get("hostid"); id != "" {
				hosts, err := nodes(ctx)
				if err != nil {
					return nil, err
				}
				i := slices.IndexFunc(hosts, func(n api.Node) bool { return n.ID == id })
				if i < 0 {
					return Found{Endpoints: []api.Endpoint{}}, nil
				}
				q.Set("host", hosts[i].Name)
			}
			return find(list, q), nil
		},
		"container": of(func(list []api.Endpoint, q url.Values) any { return near(list, q.Get("id")) }),
		"counts":    of(func(list []api.Endpoint, _ url.Values) any { return counts(list) }),
		"names":     of(func(list []api.Endpoint, _ url.Values) any { return names(list) }),
		"leased": func(ctx context.Context, q url.Values) (any, error) {
			list, err := endpoints(ctx)
			if err != nil {
				return nil, err
			}
			known, err := networks(ctx)
			return leased(known, list, q.Get("network")), err
		},
	}
}

// Network is a network with some of its hosts.
type Network struct {
	api.Network
	HostCount int `json:"hostCount"`
}

func shortened(list []api.Network) []Network {
	out := make([]Network, len(list))
	for i, n := range list {
		out[i] = Network{n, len(n.Hosts)}
		out[i].Hosts = n.Hosts[:min(len(n.Hosts), mostOfHosts)]
	}
	return out
}

// Map is a page of the trellis.
type Map struct {
	Hosts      []api.Node `json:"hosts"`
	All        int        `json:"all"` // hosts
	Page       int        `json:"page"`
	Pages      int        `json:"pages"`
	Containers int        `json:"containers"` // on all pages
	Cells      []Cell     `json:"cells"`
}

// Cell is where a network and a host cross.
type Cell struct {
	Host       string      `json:"host"`
	Network    string      `json:"network"`
	Count      int         `json:"count"`
	Containers []Container `json:"containers"` // some
}

// Container is one by name.
type Container struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

func idOf(e api.Endpoint) string { return cmp.Or(e.Container, e.ID) }

func containerOf(e api.Endpoint) Container {
	return Container{idOf(e), cmp.Or(e.Name, idOf(e)[:min(12, len(idOf(e)))])}
}

// natural compares as people count: host2 comes before host10.
func natural(a, b string) int {
	for a != "" && b != "" {
		x, y := digits(a), digits(b)
		if x > 0 && y > 0 {
			m, n := strings.TrimLeft(a[:x], "0"), strings.TrimLeft(b[:y], "0")
			if c := cmp.Or(cmp.Compare(len(m), len(n)), cmp.Compare(m, n)); c != 0 {
				return c
			}
			a, b = a[x:], b[y:]
			continue
		}
		if c := cmp.Compare(a[0]|0x20, b[0]|0x20); c != 0 {
			return c
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

func digits(s string) (n int) {
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// MapOf is a page of the map.
func MapOf(nodes []api.Node, endpoints []api.Endpoint, page int) Map {
	nodes = slices.Clone(nodes)
	slices.SortStableFunc(nodes, func(a, b api.Node) int { return natural(a.Name, b.Name) })
	m := Map{All: len(nodes), Pages: max(1, (len(nodes)+hostsAPage-1)/hostsAPage)}
	m.Page = max(1, min(page, m.Pages))
	m.Hosts = nodes[(m.Page-1)*hostsAPage : min(len(nodes), m.Page*hostsAPage)]
	shown := map[string]bool{}
	for _, n := range m.Hosts {
		shown[n.Name] = true
	}
	most := 3 // for who hovers
	if len(m.Hosts) <= namedHosts {
		most = mostOfCell
	}
	at, all := map[[2]string]int{}, map[string]bool{}
	for _, e := range endpoints {
		all[idOf(e)] = true
		if !shown[e.Host] {
			continue
		}
		key := [2]string{e.Host, e.Network}
		i, known := at[key]
		if !known {
			i = len(m.Cells)
			at[key] = i
			m.Cells = append(m.Cells, Cell{Host: e.Host, Network: e.Network})
		}
		m.Cells[i].Count++
		if c := &m.Cells[i]; len(c.Containers) < most {
			c.Containers = append(c.Containers, containerOf(e))
		}
	}
	for _, c := range m.Cells {
		slices.SortFunc(c.Containers, func(a, b Container) int { return cmp.Or(natural(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	}
	m.Containers = len(all)
	return m
}

// Found are the containers that were looked for, some of them.
type Found struct {
	All       int            `json:"all"`
	Found     int            `json:"found"`
	Endpoints []api.Endpoint `json:"endpoints"` // of the first, by name: all that each has
}

// find finds containers by words (find=), by the network or host they are on, or those with published ports.
func find(endpoints []api.Endpoint, q url.Values) Found {
	words := strings.Fields(strings.ToLower(q.Get("find")))
	network, host, published := q.Get("network"), q.Get("host"), q.Has("published")
	places := map[string][]api.Endpoint{}
	for _, e := range endpoints {
		places[idOf(e)] = append(places[idOf(e)], e)
	}
	f := Found{All: len(places), Endpoints: []api.Endpoint{}}
	var found []Container
	for id, all := range places {
		on := network == "" && host == "" && !published
		for _, e := range all {
			on = on || (network == "" || e.Network == network) && (host == "" || e.Host == host) && (!published || len(e.Ports) > 0)
		}
		if on && has(all, words) {
			found = append(found, Container{id, containerOf(all[0]).Name})
		}
	}
	slices.SortFunc(found, func(a, b Container) int { return cmp.Or(natural(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	f.Found = len(found)
	for _, c := range found[:min(len(found), mostRows)] {
		f.Endpoints = append(f.Endpoints, places[c.ID]...)
	}
	return f
}

// has says whether a container has all the words in its names, addresses, networks, hosts and ports.
func has(places []api.Endpoint, words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool {
		return !slices.ContainsFunc(places, func(e api.Endpoint) bool { return hasWord(e, w) })
	})
}

// hasWord says whether an endpoint has a word. Hex digits that nobody chose are found by how they begin, IDs by four of
// them: else two letters find every fifth container.
func hasWord(e api.Endpoint, word string) bool {
	begins := func(text string) bool { return strings.HasPrefix(strings.ToLower(text), word) }
	in := func(text string) bool { return strings.Contains(strings.ToLower(text), word) }
	hex := func(text string) bool { return begins(text) || strings.Contains(word, ":") && in(text) }
	network := in
	if nameless(e.Network) {
		network = begins
	}
	return len(word) >= 4 && (begins(e.Container) || begins(e.ID)) || in(e.Name) || in(e.Host) || network(e.Network) || slices.ContainsFunc(e.Aliases, in) || hex(e.MAC) ||
		slices.ContainsFunc(e.Addrs, func(a netip.Addr) bool { return hex(a.String()) || a.Is4() && in(a.String()) }) ||
		slices.ContainsFunc(e.Ports, func(p api.Port) bool {
			return in(p.Host.String() + "->" + strconv.Itoa(int(p.Container)) + "/" + p.Proto)
		})
}

// nameless says whether a network's name is an ID: this host's Docker has not told its name.
func nameless(network string) bool {
	id := strings.TrimPrefix(network, "provisional/")
	return len(id) == 64 && strings.Trim(id, "0123456789abcdef") == ""
}

// Near is a container, and some that are on a network of it.
type Near struct {
	Endpoints  []api.Endpoint `json:"endpoints"` // its own
	Neighbours []Neighbour    `json:"neighbours"`
}

// Neighbour is a container on a network.
type Neighbour struct {
	Container
	Network string `json:"network"`
}

// near finds a container by its ID, by an endpoint's, or by an address.
func near(endpoints []api.Endpoint, id string) Near {
	n := Near{Endpoints: []api.Endpoint{}, Neighbours: []Neighbour{}}
	addr, _ := netip.ParseAddr(id)
	for _, e := range endpoints {
		if e.ID == id || addr.IsValid() && slices.Contains(e.Addrs, addr) {
			id = idOf(e)
			break
		}
	}
	mine := map[string]bool{}
	for _, e := range endpoints {
		if idOf(e) == id {
			n.Endpoints = append(n.Endpoints, e)
			mine[e.Network] = true
		}
	}
	seen := map[string]bool{id: true}
	for _, e := range endpoints {
		if mine[e.Network] && !seen[idOf(e)] {
			seen[idOf(e)] = true
			n.Neighbours = append(n.Neighbours, Neighbour{containerOf(e), e.Network})
		}
	}
	slices.SortFunc(n.Neighbours, func(a, b Neighbour) int { return cmp.Or(natural(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	n.Neighbours = n.Neighbours[:min(len(n.Neighbours), mostNear)]
	return n
}

// counts are containers by host: one that is on two networks is one.
func counts(endpoints []api.Endpoint) map[string]int {
	out, seen := map[string]int{}, map[string]bool{}
	for _, e := range endpoints {
		if !seen[idOf(e)] {
			seen[idOf(e)] = true
			out[e.Host]++
		}
	}
	return out
}

// names are what may be typed for containers: with the network where a name alone is several's.
func names(endpoints []api.Endpoint) []string {
	times := map[string]int{}
	for _, e := range endpoints {
		times[e.Name]++
	}
	out := []string{}
	for _, e := range endpoints {
		switch {
		case e.Name == "":
		case times[e.Name] > 1:
			out = append(out, e.Network+"/"+e.Name)
		default:
			out = append(out, e.Name)
		}
	}
	slices.SortFunc(out, natural)
	out = slices.Compact(out)
	return out[:min(len(out), mostNames)]
}

// Leased says where in a prefix addresses are had, in thousandths of it.
type Leased struct {
	Prefix netip.Prefix `json:"prefix"`
	At     []int        `json:"at"`
}

// leased are the addresses of containers, by the prefixes of networks (of one, or of all).
func leased(networks []api.Network, endpoints []api.Endpoint, only string) []Leased {
	out := []Leased{}
	by := map[string][]int{} // places in out
	for _, n := range networks {
		if only != "" && n.Name != only {
			continue
		}
		for _, s := range n.Subnets {
			by[n.Name] = append(by[n.Name], len(out))
			out = append(out, Leased{Prefix: s.Prefix, At: []int{}})
		}
	}
	seen := map[[2]int]bool{}
	for _, e := range endpoints {
		for _, i := range by[e.Network] {
			for _, a := range e.Addrs {
				at, in := within(out[i].Prefix, a)
				if in && !seen[[2]int{i, at}] {
					seen[[2]int{i, at}] = true
					out[i].At = append(out[i].At, at)
				}
			}
		}
	}
	for _, l := range out {
		slices.Sort(l.At)
	}
	return out
}

// within is in which part of a prefix an address is.
func within(p netip.Prefix, a netip.Addr) (int, bool) {
	if !p.Contains(a) {
		return 0, false
	}
	base := new(big.Int).SetBytes(p.Masked().Addr().AsSlice())
	off := new(big.Int).Sub(new(big.Int).SetBytes(a.AsSlice()), base)
	off.Mul(off, big.NewInt(grain))
	return int(off.Rsh(off, uint(a.BitLen()-p.Bits())).Int64()), true
}
