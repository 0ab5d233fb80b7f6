// Package lan has addresses of this host's LANs that move from host to host: it finds their interface, adds and removes
// them, asks who else has them (RFC 5227), and tells everybody that they are here now. It works in the network
// namespace of the calling thread, and with IPv4 so far.
package lan

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
)

// mark is at the end of the label of an address that we have added: `ip address` shows it. An administrator's own has
// none, and is not ours to remove.
const mark = ":gv"

// Place is what this host has of an address.
type Place struct {
	// NIC is the interface that has it or, if none does, one with a subnet that it is in; "": there is none.
	NIC string
	MAC net.HardwareAddr // of NIC
	// Here: NIC has it. Ours: we have added it.
	Here, Ours bool
}

// Find says what this host has of an address.
func Find(a netip.Addr) (Place, error) {
	all, err := addresses()
	if err != nil {
		return Place{}, err
	}
	var p Place
	index, bits := 0, -1
	for _, have := range all {
		prefix, ok := prefixOf(have)
		switch {
		case ok && prefix.Addr() == a:
			p.Here, p.Ours, index, bits = true, strings.HasSuffix(have.Label, mark), have.LinkIndex, 200
		case ok && prefix.Contains(a) && prefix.Bits() > bits && !prefix.IsSingleIP() && !strings.HasSuffix(have.Label, mark):
			if name := link.Name(have.LinkIndex); name != link.Gateway && name != "" {
				index, bits = have.LinkIndex, prefix.Bits()
			}
		}
	}
	if index == 0 {
		return p, nil
	}
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return Place{}, fmt.Errorf("look at the interface of address %v: %w", a, err)
	}
	p.NIC, p.MAC = l.Attrs().Name, l.Attrs().HardwareAddr
	if l.Attrs().Flags&net.FlagUp == 0 && !p.Here {
		return Place{}, nil
	}
	return p, nil
}

func addresses() ([]netlink.Addr, error) {
	all, err := link.Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return nil, fmt.Errorf("list this host's addresses: %w", err)
	}
	return all, nil
}

func prefixOf(a netlink.Addr) (netip.Prefix, bool) {
	ip, ok := netip.AddrFromSlice(a.IP)
	if !ok || a.Mask == nil {
		return netip.Prefix{}, false
	}
	bits, _ := a.Mask.Size()
	return netip.PrefixFrom(ip.Unmap(), bits), true
}

// Add adds an address to an interface, with our mark.
func Add(nic string, a netip.Addr) error {
	l, err := netlink.LinkByName(nic)
	if err == nil {
		err = netlink.AddrReplace(l, ours(nic, a))
	}
	if err != nil {
		return fmt.Errorf("add address %v to %s: %w", a, nic, err)
	}
	return nil
}

// ours is an address with our mark. It brings no route along, and no subnet.
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
func Ours() (list []netip.Addr, err error) {
	all, err := addresses()
	for _, have := range all {
		if p, ok := prefixOf(have); ok && strings.HasSuffix(have.Label, mark) {
			list = append(list, p.Addr())
		}
	}
	return list, err
}

func remove(which func(netip.Addr) bool) (gone []string, err error) {
	all, err := addresses()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, have := range all {
		p, ok := prefixOf(have)
		if !ok || !strings.HasSuffix(have.Label, mark) || !which(p.Addr()) {
			continue
		}
		l, err := netlink.LinkByIndex(have.LinkIndex)
		if err == nil {
			err = netlink.AddrDel(l, &netlink.Addr{IPNet: have.IPNet, Label: have.Label})
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
