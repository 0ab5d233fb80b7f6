package link

import (
	"bytes"
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
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
	made, err := v.create()
	if err != nil {
		return fmt.Errorf("veth %s and %s: %w", v.Name, v.Peer, mapErr(err))
	}
	if err := v.configure(made); err != nil {
		return fmt.Errorf("configure veth %s and %s: %w", v.Name, v.Peer, mapErr(err))
	}
	return nil
}

// create makes the pair, unless it is there; made: as v says, but for what only the host's end has.
func (v Veth) create() (made bool, err error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = v.Name
	attrs.MTU = v.MTU
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: v.Peer, PeerHardwareAddr: v.PeerMAC, PeerMTU: uint32(v.MTU)}
	// Mostly there is none, and each question takes its time while a container starts.
	if err := netlink.LinkAdd(pair); !errors.Is(err, unix.EEXIST) {
		return true, err
	}
	host, err := netlink.LinkByName(v.Name)
	if err == nil {
		whole, err := v.isPair(host)
		if err != nil || whole {
			return false, err
		}
		if err := netlink.LinkDel(host); err != nil {
			return false, fmt.Errorf("delete the old pair: %w", err)
		}
	} else if !errors.Is(mapErr(err), ErrNotFound) {
		return false, err
	}
	err = netlink.LinkAdd(pair)
	if peer, gone := Get(v.Peer); errors.Is(err, unix.EEXIST) && gone == nil {
		return false, &StrangerError{Name: v.Peer, Kind: peer.Kind}
	}
	return true, err
}

// isPair reports whether host and v.Peer are the two ends of one veth pair.
func (v Veth) isPair(host netlink.Link) (bool, error) {
	if host.Type() != "veth" {
		return false, &StrangerError{Name: v.Name, Kind: host.Type()}
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

func (v Veth) configure(made bool) error {
	host, err := netlink.LinkByName(v.Name)
	if err != nil {
		return err
	}
	if !made {
		if err := v.mend(host); err != nil {
			return err
		}
	}
	if v.Alias != "" && host.Attrs().Alias != v.Alias {
		if err := netlink.LinkSetAlias(host, v.Alias); err != nil {
			return fmt.Errorf("set alias: %w", err)
		}
	}
	if err := noIPv6Address(host); err != nil {
		return err
	}
	return netlink.LinkSetUp(host)
}

// mend sets a pair right that was there before.
func (v Veth) mend(host netlink.Link) error {
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
	return nil
}
