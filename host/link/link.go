// Package link is the agent's hand on network interfaces: veth pairs for
// containers, their offloads, and where the underlay is. Every function works in
// the network namespace of the calling thread, is idempotent, and does not block
// beyond the kernel's answer.
package link

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Link is what the agent wants to know of an interface.
type Link struct {
	Name  string
	Index int
	MAC   net.HardwareAddr
	MTU   int // bytes, without the Ethernet header
	Up    bool
	Alias string // as `ip link set alias`
	Kind  string // "veth", "tuntap", "openvswitch", ...; "device" of hardware
}

// Get returns the interface called name, or an error that is ErrNotFound.
func Get(name string) (Link, error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return Link{}, fmt.Errorf("interface %s: %w", name, mapErr(err))
	}
	return fromNetlink(l), nil
}

// List returns the interfaces whose names begin with prefix, in the kernel's order.
func List(prefix string) ([]Link, error) {
	all, err := Dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	var out []Link
	for _, l := range all {
		if strings.HasPrefix(l.Attrs().Name, prefix) {
			out = append(out, fromNetlink(l))
		}
	}
	return out, nil
}

// Delete removes the interface called name, and with one end of a veth pair the
// other. That there is none is no error.
func Delete(name string) error {
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(l)
	}
	if err = mapErr(err); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("delete interface %s: %w", name, err)
	}
	return nil
}

// Up sets the interface called name up.
func Up(name string) error {
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(l)
	}
	if err != nil {
		return fmt.Errorf("set up %s: %w", name, mapErr(err))
	}
	return nil
}

// SetMTU sets the MTU of the interface called name, in bytes.
func SetMTU(name string, mtu int) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("set mtu of %s: %w", name, mapErr(err))
	}
	if l.Attrs().MTU == mtu {
		return nil
	}
	if err := netlink.LinkSetMTU(l, mtu); err != nil {
		return fmt.Errorf("set mtu of %s to %d: %w", name, mtu, mapErr(err))
	}
	return nil
}

// addrGenNone is IN6_ADDR_GEN_MODE_NONE of linux/if_link.h.
const addrGenNone = 1

// NoIPv6Address keeps the kernel from giving the interface a link-local address when
// it comes up, and so from soliciting routers through it. A kernel without IPv6 has
// nothing to turn off.
func NoIPv6Address(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("turn off IPv6 addresses on %s: %w", name, mapErr(err))
	}
	return noIPv6Address(l)
}

func noIPv6Address(l netlink.Link) error {
	if err := netlink.LinkSetIP6AddrGenMode(l, addrGenNone); err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
		return fmt.Errorf("turn off IPv6 addresses on %s: %w", l.Attrs().Name, mapErr(err))
	}
	return nil
}

// ErrNotFound says that there is no such interface.
var ErrNotFound = errors.New("no such interface")

// mapErr turns the several ways the kernel and netlink say "gone" into ErrNotFound.
func mapErr(err error) error {
	var gone netlink.LinkNotFoundError
	if errors.As(err, &gone) || errors.Is(err, unix.ENODEV) {
		return ErrNotFound
	}
	return err
}

func fromNetlink(l netlink.Link) Link {
	a := l.Attrs()
	return Link{Name: a.Name, Index: a.Index, MAC: a.HardwareAddr, MTU: a.MTU, Up: a.Flags&net.FlagUp != 0, Alias: a.Alias, Kind: l.Type()}
}

// VRF is the name of the VRF that an interface is in, "" if it is in none.
func VRF(name string) string {
	l, err := netlink.LinkByName(name)
	if err != nil || l.Attrs().MasterIndex == 0 {
		return ""
	}
	master, err := netlink.LinkByIndex(l.Attrs().MasterIndex)
	if err != nil || master.Type() != "vrf" {
		return ""
	}
	return master.Attrs().Name
}

// Name is the name of the interface of that index, "" if there is none.
func Name(index int) string {
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return ""
	}
	return l.Attrs().Name
}
