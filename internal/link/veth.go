package link

import (
	"bytes"
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
)

// Veth is a pair of interfaces: Name stays on the host, Peer goes into a sandbox.
type Veth struct {
	Name, Peer string // at most 15 bytes each
	// PeerMAC is the container's address; nil: any.
	PeerMAC net.HardwareAddr
	// MTU of both ends, bytes; 0: the kernel's default.
	MTU int
	// Alias is put on the host's end, so that a reader of `ip link` knows whose it is.
	Alias string
}

// Ensure makes the pair, both ends in this namespace, the host's end up and the
// peer down, as libnetwork wants to move it. A pair that is there is set right; one
// whose peer is not in this namespace any more (a sandbox that is gone or broken
// has it) is made anew. Of two interfaces in the way with one of the names, but no
// pair, it deletes none: that is an error.
func (v Veth) Ensure() error {
	if err := v.create(); err != nil {
		return fmt.Errorf("veth %s and %s: %w", v.Name, v.Peer, mapErr(err))
	}
	if err := v.configure(); err != nil {
		return fmt.Errorf("configure veth %s and %s: %w", v.Name, v.Peer, mapErr(err))
	}
	return nil
}

func (v Veth) create() error {
	host, err := netlink.LinkByName(v.Name)
	if err == nil {
		whole, err := v.isPair(host)
		if err != nil || whole {
			return err
		}
		if err := netlink.LinkDel(host); err != nil {
			return fmt.Errorf("delete the old pair: %w", err)
		}
	} else if !errors.Is(mapErr(err), ErrNotFound) {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = v.Name
	attrs.MTU = v.MTU
	return netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: attrs, PeerName: v.Peer, PeerHardwareAddr: v.PeerMAC, PeerMTU: uint32(v.MTU),
	})
}

// isPair reports whether host and v.Peer are the two ends of one veth pair.
func (v Veth) isPair(host netlink.Link) (bool, error) {
	if host.Type() != "veth" {
		return false, fmt.Errorf("%s is a %s of somebody else's: remove or rename it", v.Name, host.Type())
	}
	peer, err := netlink.LinkByName(v.Peer)
	if errors.Is(mapErr(err), ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// A peer in another namespace has an index of that namespace, with a netnsid.
	h := host.Attrs()
	return h.NetNsID == -1 && h.ParentIndex == peer.Attrs().Index, nil
}

func (v Veth) configure() error {
	host, err := netlink.LinkByName(v.Name)
	if err != nil {
		return err
	}
	peer, err := netlink.LinkByName(v.Peer)
	if err != nil {
		return err
	}
	for _, l := range []netlink.Link{host, peer} {
		if v.MTU != 0 && l.Attrs().MTU != v.MTU {
			if err := netlink.LinkSetMTU(l, v.MTU); err != nil {
				return fmt.Errorf("set mtu %d: %w", v.MTU, err)
			}
		}
	}
	if v.PeerMAC != nil && !bytes.Equal(peer.Attrs().HardwareAddr, v.PeerMAC) {
		if err := netlink.LinkSetHardwareAddr(peer, v.PeerMAC); err != nil {
			return fmt.Errorf("set address %s: %w", v.PeerMAC, err)
		}
	}
	if v.Alias != "" && host.Attrs().Alias != v.Alias {
		if err := netlink.LinkSetAlias(host, v.Alias); err != nil {
			return fmt.Errorf("set alias: %w", err)
		}
	}
	if err := NoIPv6Address(v.Name); err != nil {
		return err
	}
	return netlink.LinkSetUp(host)
}
