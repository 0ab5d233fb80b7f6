package reach

import (
	"fmt"
	"net/netip"
	"slices"
)

// Full is a range of the cluster in which a host can take no network at all, though there may
// be none yet.
type Full struct {
	Host  string // by name
	Self  bool   // it is this host
	Range netip.Prefix
	By    Thing // or one of several
	More  bool  // there are several
}

// Full returns all that are known, this host's first.
func (m Model) Full() (list []Full) {
	note := func(things []Thing, host string, self bool) {
		for _, c := range m.CIDRs {
			if by, n := fill(c, things, m.CIDRs); n > 0 {
				list = append(list, Full{host, self, c, by, n > 1})
			}
		}
	}
	note(m.Here, "", true)
	for n := range m.others() {
		note(Of(n), nameOf(n), false)
	}
	return list
}

// fill returns what leaves no room in p, and how many things together, 0 if there is room.
func fill(p netip.Prefix, things []Thing, cidrs []netip.Prefix) (by Thing, n int) {
	things = slices.DeleteFunc(slices.Clone(things), func(t Thing) bool { return !t.Bars(p, cidrs) })
	if len(things) == 0 {
		return by, 0
	}
	for _, t := range things {
		if within(p, t.Prefix) {
			return t, 1
		}
	}
	low := netip.PrefixFrom(p.Addr(), p.Bits()+1)
	high := netip.PrefixFrom(next(low), p.Bits()+1)
	by, first := fill(low, things, cidrs)
	if first == 0 {
		return by, 0
	}
	other, second := fill(high, things, cidrs)
	switch {
	case second == 0:
		return other, 0
	case other == by:
		return by, max(first, second)
	}
	return by, first + second
}

// next is the first address behind a prefix, which is not the last of its family.
func next(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	at := p.Bits() - 1
	b[at/8] |= 0x80 >> (at % 8)
	a, _ := netip.AddrFromSlice(b)
	return a
}

// What says it for people.
func (f Full) What() string {
	who, has := "this host", f.By.String()
	if !f.Self {
		who = "host " + f.Host
	}
	if f.More {
		has += " and more"
	}
	return fmt.Sprintf("%s can take no network of the cluster's range %s: it has %s there, which stays as it is", who, f.Range, has)
}

// Do says what to do about it.
func (f Full) Do() string {
	setting := "GRAPEVINE_CIDR4"
	if f.Range.Addr().Is6() {
		setting = "GRAPEVINE_CIDR6"
	}
	return "set " + setting + " to a prefix that no host has anything in, the same on every host; or make networks with --subnet elsewhere"
}
