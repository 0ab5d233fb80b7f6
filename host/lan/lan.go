// Package lan has addresses of this host's LANs that move from host to host: it finds their interface, adds and removes
// them, asks who else has them, by ARP and neighbour discovery, and tells everybody that they are here now. It works in
// the network namespace of the calling thread.
package lan

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
)

// Place is what this host has of an address.
type Place struct {
	// NIC is the interface that is to have it: the one where an administrator has it or, if there is none, one with a subnet that
	// it is in; "": there is none.
	NIC string
	MAC net.HardwareAddr // of NIC
	// Here: NIC has it. Ours: we have added it, to NIC or, if it is not here, to another one, where it is of no use any more.
	Here, Ours bool
	// Cut: NIC has no link, or is set down. It reaches nobody.
	Cut bool
	// Off: it is on no LAN of this host's, in no subnet of any interface.
	Off bool
}

// View is what this host's interfaces have, at one moment.
type View struct {
	addrs []assigned
	links map[int]*netlink.LinkAttrs // those that have addresses
}

// Look looks at this host's interfaces.
func Look() (View, error) {
	all, err := addresses()
	v := View{all, map[int]*netlink.LinkAttrs{}}
	for _, have := range all {
		if _, known := v.links[have.link]; known {
			continue
		}
		l, err := netlink.LinkByIndex(have.link)
		switch _, gone := errors.AsType[netlink.LinkNotFoundError](err); {
		case gone: // since then
		case err != nil:
			return View{}, fmt.Errorf("look at the interface of address %v: %w", have.prefix, err)
		default:
			v.links[have.link] = l.Attrs()
		}
	}
	return v, err
}

// Find says what this host has of an address.
func (v View) Find(a netip.Addr) Place {
	var theirs, ours, at *netlink.LinkAttrs // that have it, or are to have it
	var within netip.Prefix
	off := true
	for _, have := range v.addrs {
		prefix, l := have.prefix, v.links[have.link]
		off = off && (have.ours || !prefix.Contains(a))
		switch {
		case l == nil || l.Name == link.Gateway || link.IsDockers(l.Name):
		case prefix.Addr() == a && have.failed:
			return Place{}
		case prefix.Addr() == a && have.ours:
			ours = l
		case prefix.Addr() == a:
			theirs = l
		case prefix.Contains(a) && !prefix.IsSingleIP() && !have.ours && len(l.HardwareAddr) == 6: // of others nobody can be asked
			// Of interfaces on one LAN one with a link comes first, and then the one that has it.
			if at == nil || cmp.Or(cmp.Compare(prefix.Bits(), within.Bits()), compare(linked(l), linked(at)), compare(v.has(l, a), v.has(at, a))) > 0 {
				at, within = l, prefix
			}
		}
	}
	p := Place{Ours: ours != nil}
	switch {
	case theirs != nil:
		at, p.Here = theirs, true
	case ours != nil && ours.Name == Loopback:
		at, p.Here = ours, true
	case off:
		p.Off = true
		return p
	case at == nil || reserved(within, a):
		return p
	default:
		p.Here = ours != nil && ours.Index == at.Index
	}
	p.NIC, p.MAC, p.Cut = at.Name, at.HardwareAddr, !linked(at)
	return p
}

// has reports whether we have added an address to an interface.
func (v View) has(l *netlink.LinkAttrs, a netip.Addr) bool {
	return slices.ContainsFunc(v.addrs, func(have assigned) bool { return have.ours && have.link == l.Index && have.prefix.Addr() == a })
}

// compare puts what is true after what is not.
func compare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// linked reports whether an interface is up and has a link: a cable with something at its other end or, of one that stands on
// others, as bonds and bridges do, one of those that has.
func linked(l *netlink.LinkAttrs) bool {
	const up = unix.IFF_UP | unix.IFF_LOWER_UP
	return l.RawFlags&up == up && l.OperState != netlink.OperDormant
}

// Linked reports whether an interface is there and has a link.
func Linked(nic string) bool {
	l, err := netlink.LinkByName(nic)
	return err == nil && linked(l.Attrs())
}

// reserved reports whether an address is the first or last of a subnet, which no machine has.
func reserved(p netip.Prefix, a netip.Addr) bool {
	return p.Bits() < a.BitLen()-1 && (!p.Contains(a.Prev()) || !p.Contains(a.Next()))
}

// Add adds an address to an interface, with our mark.
func Add(nic string, a netip.Addr) error {
	l, err := netlink.LinkByName(nic)
	switch {
	case err != nil:
	case a.Is6():
		err = addV6(l.Attrs().Index, a)
	default:
		err = netlink.AddrReplace(l, ours(nic, a))
	}
	if err != nil {
		return fmt.Errorf("add address %v to %s: %w", a, nic, err)
	}
	return nil
}

// ours is an IPv4 address with our mark. It brings no route along, and no subnet.
func ours(nic string, a netip.Addr) *netlink.Addr {
	return &netlink.Addr{
		IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())},
		Label: nic[:min(len(nic), unix.IFNAMSIZ-1-len(mark))] + mark, Flags: unix.IFA_F_NOPREFIXROUTE, Broadcast: net.IPv4zero,
	}
}

// Remove removes an address that has our mark; none is no error.
func Remove(a netip.Addr) error {
	_, err := remove(func(p netip.Addr) bool { return p == a })
	return err
}

// Purge removes all addresses that have our mark, and names them.
func Purge() ([]string, error) { return remove(func(netip.Addr) bool { return true }) }

// Ours are all addresses that have our mark.
func (v View) Ours() (list []netip.Addr) {
	for _, have := range v.addrs {
		if have.ours {
			list = append(list, have.prefix.Addr())
		}
	}
	return list
}

func remove(which func(netip.Addr) bool) (gone []string, err error) {
	all, err := addresses()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, have := range all {
		p := have.prefix
		if !have.ours || !which(p.Addr()) {
			continue
		}
		l, err := netlink.LinkByIndex(have.link)
		if err == nil {
			err = netlink.AddrDel(l, &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}, Label: have.label})
		}
		if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("remove address %v: %w", p.Addr(), err))
			continue
		}
		gone = append(gone, p.Addr().String())
	}
	slices.Sort(gone)
	return gone, errors.Join(errs...)
}
