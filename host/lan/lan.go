// Package lan has addresses of this host's LANs that move from host to host: it finds their interface, adds and removes
// them, asks who else has them, by ARP and neighbour discovery, and tells everybody that they are here now. It works in
// the network namespace of the calling thread.
package lan

import (
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
	// NIC is the interface that has it or, if none does, one with a subnet that it is in; "": there is none.
	NIC string
	MAC net.HardwareAddr // of NIC
	// Here: NIC has it. Ours: we have added it.
	Here, Ours bool
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
	var p Place
	var at *netlink.LinkAttrs
	var within netip.Prefix
	bits := -1
	off := true
	for _, have := range v.addrs {
		prefix, l := have.prefix, v.links[have.link]
		off = off && !prefix.Contains(a)
		switch {
		case l == nil || l.Name == link.Gateway || link.IsDockers(l.Name):
		case prefix.Addr() == a && have.failed:
			return Place{}
		case prefix.Addr() == a:
			p.Here, p.Ours, at, bits = true, have.ours, l, 200
		case prefix.Contains(a) && prefix.Bits() > bits && !prefix.IsSingleIP() && !have.ours && len(l.HardwareAddr) == 6: // of others nobody can be asked
			at, bits, within = l, prefix.Bits(), prefix
		}
	}
	if off {
		return Place{Off: true}
	}
	if at == nil || at.Flags&net.FlagUp == 0 && !p.Here {
		return Place{}
	}
	if !p.Here && reserved(within, a) {
		return Place{}
	}
	p.NIC, p.MAC = at.Name, at.HardwareAddr
	return p
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
