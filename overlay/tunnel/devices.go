package tunnel

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/encap"
	"github.com/grapevine-net/grapevine/host/link"
)

// devices is struct devices of tunnel.c.
type devices struct {
	VXLAN, Peer uint32
	Source      vtep // zero: none
}

// ensureDevices makes gvtun, gvtunx and gvvxlan; new ones are still down.
func (t *Tunnel) ensureDevices() (devices, error) {
	pair := link.Veth{Name: Port, Peer: peer, MTU: t.cfg.MTU, Alias: "grapevine: tunnel port of the userspace datapath"}
	if err := pair.Ensure(); err != nil {
		return devices{}, err
	}
	if err := link.ForUserspace(peer, t.cfg.TSO); err != nil {
		return devices{}, err
	}
	if err := t.ensureVXLAN(); err != nil {
		return devices{}, err
	}
	var index [2]uint32
	for i, name := range []string{VXLAN, peer} {
		l, err := link.Get(name)
		if err != nil {
			return devices{}, err
		}
		index[i] = uint32(l.Index)
	}
	d := devices{VXLAN: index[0], Peer: index[1]}
	if t.cfg.Source.IsValid() {
		d.Source = t.cfg.Source.As16()
	}
	return d, nil
}

// ensureVXLAN makes gvvxlan, anew if the one there has other properties.
func (t *Tunnel) ensureVXLAN() error {
	l, err := netlink.LinkByName(VXLAN)
	if err == nil {
		v, isVXLAN := l.(*netlink.Vxlan)
		if !isVXLAN {
			return notOurs(l)
		}
		if v.FlowBased && v.Port == int(t.cfg.UDPPort) && v.UDP6ZeroCSumRx {
			return link.SetMTU(VXLAN, t.cfg.MTU)
		}
		if err := link.Delete(VXLAN); err != nil {
			return err
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = VXLAN
	attrs.MTU = t.cfg.MTU
	err = netlink.LinkAdd(&netlink.Vxlan{
		LinkAttrs: attrs,
		FlowBased: true, // metadata per packet: remote, VNI, checksum or not
		Port:      int(t.cfg.UDPPort),
		// Senders may leave the checksum out over IPv6 too (RFC 6935); ours do not.
		UDP6ZeroCSumRx: true,
	})
	if err != nil {
		return t.portError("create", err)
	}
	return nil
}

func notOurs(l netlink.Link) error {
	return fmt.Errorf("%s is a %s of somebody else's: remove or rename it", l.Attrs().Name, l.Type())
}

// remove deletes the devices, gvtunx with gvtun.
func remove() error {
	for name, kind := range map[string]string{Port: "veth", VXLAN: encap.VXLAN.Name} {
		l, err := netlink.LinkByName(name)
		if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone {
			continue
		}
		if err != nil {
			return fmt.Errorf("interface %s: %w", name, err)
		}
		if l.Type() != kind {
			return notOurs(l)
		}
		if err := link.Delete(name); err != nil {
			return err
		}
	}
	return nil
}

// up sets all three up: only now that the programs are attached, so that nothing
// gets past them.
func (t *Tunnel) up() error {
	for _, name := range []string{peer, Port, VXLAN} {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("interface %s: %w", name, err)
		}
		if err := link.NoIPv6Address(name); err != nil {
			return err
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return t.portError("set up", err)
		}
	}
	return nil
}

// portError explains that the UDP port is taken: the kernel says EEXIST for a
// device of the same kind and EADDRINUSE for any other socket.
func (t *Tunnel) portError(verb string, err error) error {
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("%s %s: UDP port %d is taken by another VXLAN device or program of this host (Docker Swarm uses %d): "+
			"set GRAPEVINE_VXLAN_PORT to another one, the same on every host: %w", verb, VXLAN, t.cfg.UDPPort, encap.VXLAN.Port, err)
	}
	return fmt.Errorf("%s %s: %w", verb, VXLAN, err)
}
