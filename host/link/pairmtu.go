package link

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// SetPairMTU sets the MTU, in bytes, of both ends of a veth pair: name, in this
// namespace, and its peer, here or in the namespace of file sandbox. When it shrinks,
// the peer, which may be sending, comes first; when it grows, last.
func SetPairMTU(name, sandbox string, mtu int) error {
	host, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("set mtu of %s: %w", name, mapErr(err))
	}
	set := []func() error{
		func() error { return setPeerMTU(host.Attrs(), sandbox, mtu) },
		func() error { return SetMTU(name, mtu) },
	}
	if mtu > host.Attrs().MTU {
		set[0], set[1] = set[1], set[0]
	}
	for _, do := range set {
		if err := do(); err != nil {
			return fmt.Errorf("set mtu of %s and its peer to %d: %w", name, mtu, err)
		}
	}
	return nil
}

// setPeerMTU sets the MTU of the veth whose other end is host.
func setPeerMTU(host *netlink.LinkAttrs, sandbox string, mtu int) error {
	h, peer, done, err := peerIn(host, sandbox)
	if err != nil {
		return err
	}
	defer done()
	if peer.Attrs().MTU == mtu {
		return nil
	}
	return h.LinkSetMTU(peer, mtu)
}
