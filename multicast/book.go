package multicast

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
)

// linger is for how long a group that was left is still told.
const linger = 3 * time.Second

// book is which groups of which endpoints are told. It is pure.
type book struct {
	members map[string]*member // by endpoint
	total   int                // groups of all members
}

// member is what is known of an endpoint.
type member struct {
	groups  map[netip.Addr]time.Time // that are told, and when it was a member last
	refused int                      // groups of which it is a member and that are not told
}

func newBook() *book { return &book{members: map[string]*member{}} }

func (b *book) member(endpoint string) *member {
	m := b.members[endpoint]
	if m == nil {
		m = &member{groups: map[netip.Addr]time.Time{}}
		b.members[endpoint] = m
	}
	return m
}

// restore notes what was told of an endpoint of which nothing is known yet.
func (b *book) restore(endpoint string, groups []netip.Addr, now time.Time) {
	if b.members[endpoint] != nil {
		return
	}
	m := b.member(endpoint)
	for _, g := range groups {
		m.groups[g] = now
	}
	b.total += len(m.groups)
}

// see notes which groups an endpoint is a member of now. Those that are told already stay, whatever others there are.
func (b *book) see(endpoint string, groups []netip.Addr, now time.Time) {
	m := b.member(endpoint)
	b.total -= len(m.groups)
	var fresh []netip.Addr
	for _, g := range groups {
		if _, has := m.groups[g]; has {
			m.groups[g] = now
		} else {
			fresh = append(fresh, g)
		}
	}
	maps.DeleteFunc(m.groups, func(_ netip.Addr, last time.Time) bool { return now.Sub(last) >= linger })
	slices.SortFunc(fresh, netip.Addr.Compare)
	fresh = slices.Compact(fresh)
	room := max(0, min(cluster.MaxGroups-len(m.groups), cluster.MaxHostGroups-b.total-len(m.groups)))
	for _, g := range fresh[:min(room, len(fresh))] {
		m.groups[g] = now
	}
	m.refused = max(0, len(fresh)-room)
	b.total += len(m.groups)
}

// forget is for an endpoint that is gone.
func (b *book) forget(endpoint string) {
	if m := b.members[endpoint]; m != nil {
		b.total -= len(m.groups)
		delete(b.members, endpoint)
	}
}

// told are the groups of an endpoint that are told, in order.
func (b *book) told(endpoint string) []netip.Addr {
	if m := b.members[endpoint]; m != nil {
		return slices.SortedFunc(maps.Keys(m.groups), netip.Addr.Compare)
	}
	return nil
}

// refusal is of how many groups of an endpoint nobody is told. crowded: it has not as many as one may, but all of the host have.
type refusal struct {
	groups  int
	crowded bool
}

// refused says whose groups are not all told.
func (b *book) refused() map[string]refusal {
	list := map[string]refusal{}
	for id, m := range b.members {
		if m.refused > 0 {
			list[id] = refusal{m.refused, len(m.groups) < cluster.MaxGroups}
		}
	}
	return list
}

// most are the endpoints that have the most groups, of which there are n at most.
func (b *book) most(n int) []string {
	ids := slices.SortedFunc(maps.Keys(b.members), func(x, y string) int {
		return cmp.Or(cmp.Compare(len(b.members[y].groups), len(b.members[x].groups)), cmp.Compare(x, y))
	})
	return ids[:min(n, len(ids))]
}
