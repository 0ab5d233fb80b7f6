package link

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
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
	h, here := &netlink.Handle{}, -1 // the ID of this namespace where the peer is
	if host.NetNsID != -1 {
		f, err := os.Open(sandbox)
		if err != nil {
			return err
		}
		defer f.Close()
		if h, err = netlink.NewHandleAt(netns.NsHandle(f.Fd())); err != nil {
			return fmt.Errorf("enter the sandbox: %w", err)
		}
		defer h.Close()
		own, err := netns.Get()
		if err != nil {
			return fmt.Errorf("open this network namespace: %w", err)
		}
		defer own.Close()
		if here, err = h.GetNetNsIdByFd(int(own)); err != nil {
			return fmt.Errorf("find this network namespace from the sandbox: %w", err)
		}
	}
	all, err := Dump(h.LinkList)
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	for _, l := range all {
		a := l.Attrs()
		if l.Type() != "veth" || a.ParentIndex != host.Index || a.Index != host.ParentIndex || a.NetNsID != here {
			continue
		}
		if a.MTU == mtu {
			return nil
		}
		return h.LinkSetMTU(l, mtu)
	}
	return errors.New("its peer is not in the sandbox")
}
