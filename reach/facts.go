package reach

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/cluster"
)

// Addr is an address of an interface, with the length of its prefix.
type Addr struct {
	Prefix netip.Prefix
	Dev    string
}

// Route is one of the kernel's, of any table that a rule names.
type Route struct {
	Prefix netip.Prefix
	Dev    string     // "" for one that drops
	Via    netip.Addr // invalid: none
	Drops  bool
	OnLink bool // its device is one on which neighbours are asked for, and it has no Via
}

// Facts are what the kernel and Docker say.
type Facts struct {
	Addrs  []Addr
	Routes []Route
	Docker []Thing // networks, pools and rivals
}

// Things are what the facts come to, but for what every host has: its default routes,
// and what is link-local, multicast or loopback. Of one prefix the name that says most counts.
func (f Facts) Things() []Thing {
	best := map[netip.Prefix]Thing{}
	add := func(t Thing) {
		t.Prefix = t.Prefix.Masked()
		if !meaningful(t) {
			return
		}
		if old, have := best[t.Prefix]; !have || better(t, old) {
			best[t.Prefix] = t
		}
	}
	for _, a := range f.Addrs {
		add(Thing{a.Prefix, OnLink, a.Dev})
	}
	for _, r := range f.Routes {
		add(r.thing())
	}
	var pools []Thing
	for _, t := range f.Docker {
		if t.Kind == Pool || t.Kind == Rival { // it stands beside what has the prefix
			pools = append(pools, t)
			continue
		}
		add(t)
	}
	list := slices.DeleteFunc(pools, func(t Thing) bool { return !meaningful(t) })
	for _, t := range best {
		list = append(list, t)
	}
	slices.SortFunc(list, compareThing)
	return list
}

// Own are all addresses that the host has itself, but for those that every host has: as many as a record of the cluster
// has room for, sorted.
func (f Facts) Own() (list []netip.Addr) {
	for _, a := range f.Addrs {
		if one := a.Prefix.Addr(); !one.IsLoopback() && !one.IsLinkLocalUnicast() {
			list = append(list, one)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	list = slices.Compact(list)
	return list[:min(len(list), cluster.MaxAddresses)]
}

func (r Route) thing() Thing {
	switch {
	case r.Drops:
		return Thing{r.Prefix, Drop, r.Dev}
	case r.OnLink:
		return Thing{r.Prefix, OnLink, r.Dev}
	case r.Via.IsValid():
		return Thing{r.Prefix, Routed, "via " + r.Via.String() + " (" + r.Dev + ")"}
	}
	return Thing{r.Prefix, Routed, strings.TrimSpace("by " + r.Dev)}
}

// meaningful leaves out what is no destination of its own: a default route, and what means
// something else on each link or host. VPNs make halves of the default route (0.0.0.0/1,
// 2000::/3): any prefix counts as one that is wider than the widest private network (RFC 1918
// and 4193).
func meaningful(t Thing) bool {
	const widest4, widest6 = 8, 7
	a := t.Prefix.Addr()
	if !t.Prefix.IsValid() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsLoopback() {
		return false
	}
	if t.Kind == OnLink || t.Kind == Docker {
		return t.Prefix.Bits() > 0
	}
	return a.Is4() && t.Prefix.Bits() >= widest4 || a.Is6() && t.Prefix.Bits() >= widest6
}
