package tunnel

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/encap"
	"github.com/grapevine-net/grapevine/host/link"
)

// devices is struct devices of tunnel.c.
type devices struct {
	VXLAN, Peer uint32
	Source      vtep // zero: none
	Unsummed    uint32
}

// ensureDevices makes gvtun, gvtunx and the device that wraps packets; new ones are still down. The device of another kind
// goes: nothing is taken by it any more.
func (t *Tunnel) ensureDevices() (devices, error) {
	pair := link.Veth{Name: Port, Peer: peer, MTU: t.cfg.MTU, Alias: "grapevine: tunnel port of the userspace datapath"}
	if err := pair.Ensure(); err != nil {
		return devices{}, err
	}
	if err := link.ForUserspace(peer, t.cfg.TSO); err != nil {
		return devices{}, err
	}
	for kind, name := range wires {
		if kind == t.cfg.Kind.Name {
			continue
		}
		if err := removeOurs(name, kind); err != nil {
			return devices{}, err
		}
	}
	if err := t.ensureWire(); err != nil {
		return devices{}, err
	}
	var index [2]uint32
	for i, name := range []string{t.wire(), peer} {
		l, err := link.Get(name)
		if err != nil {
			return devices{}, err
		}
		index[i] = uint32(l.Index)
	}
	d := devices{VXLAN: index[0], Peer: index[1]}
	if !t.cfg.Kind.Summed() {
		d.Unsummed = 1
	}
	if t.cfg.Source.IsValid() {
		d.Source = t.cfg.Source.As16()
	}
	return d, nil
}

// ensureWire makes the device that wraps packets, anew if the one there has other properties.
func (t *Tunnel) ensureWire() error {
	l, err := netlink.LinkByName(t.wire())
	if err == nil {
		if !isOf(l, t.cfg.Kind.Name) {
			return notOurs(l)
		}
		if t.wraps(l) {
			return link.SetMTU(t.wire(), t.cfg.MTU)
		}
		if err := link.Delete(t.wire()); err != nil {
			return err
		}
	}
	if err := netlink.LinkAdd(wireOf(t.cfg.Kind, t.wire(), t.cfg.UDPPort, t.cfg.V6, t.cfg.MTU)); err != nil {
		return t.portError("create", err)
	}
	return nil
}

// wraps says whether a device is as ensureWire makes it.
func (t *Tunnel) wraps(l netlink.Link) bool {
	switch l := l.(type) {
	case *netlink.Vxlan:
		return l.FlowBased && l.Port == int(t.cfg.UDPPort) && l.UDP6ZeroCSumRx
	case *netlink.Geneve:
		return l.FlowBased && l.Dport == t.cfg.UDPPort
	case *netlink.Gretap:
		return l.FlowBased && l.Type() == t.cfg.Kind.Device(t.cfg.V6)
	}
	return false
}

// isOf says whether a device is of a kind of encapsulation.
func isOf(l netlink.Link, kind string) bool {
	if kind == encap.GRE.Name {
		return l.Type() == encap.GRE.Device(false) || l.Type() == encap.GRE.Device(true)
	}
	return l.Type() == kind
}

// wireOf is a device with metadata for each packet: remote, VNI, checksum or not. Senders may leave the checksum out over
// IPv6 too (RFC 6935), which Geneve's takes by itself; ours do not.
func wireOf(k encap.Kind, name string, port uint16, v6 bool, mtu int) netlink.Link {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, mtu
	switch k.Name {
	case encap.Geneve.Name:
		return &netlink.Geneve{LinkAttrs: attrs, FlowBased: true, Dport: port}
	case encap.GRE.Name:
		local := net.IPv4zero // by the family of which the library tells the two kinds of device
		if v6 {
			local = net.IPv6zero
		}
		return &netlink.Gretap{LinkAttrs: attrs, FlowBased: true, Local: local}
	}
	return &netlink.Vxlan{LinkAttrs: attrs, FlowBased: true, Port: int(port), UDP6ZeroCSumRx: true}
}

// probe is the device that CanWrap makes.
const probe = "gvprobe"

// removeProbe deletes that of an agent that was killed: there is one device at a time for all packets of a kind.
func removeProbe() error {
	l, err := netlink.LinkByName(probe)
	if err != nil {
		return nil
	}
	for kind := range wires {
		if isOf(l, kind) {
			return link.Delete(probe)
		}
	}
	return nil
}

// CanWrap is why this kernel has no device for a kind, between hosts at addresses of IPv4 or IPv6; nil: it has. It makes one,
// and takes it away again.
func CanWrap(k encap.Kind, v6 bool) error {
	if err := removeProbe(); err != nil {
		return err
	}
	err := netlink.LinkAdd(wireOf(k, probe, k.Port, v6, 0))
	if err == nil {
		return link.Delete(probe)
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("this kernel has no %s devices, and GRAPEVINE_ENCAP is %s: load its module (`modprobe %s`; on Debian and Ubuntu it is in the kernel's package, perhaps in linux-modules-extra), or set GRAPEVINE_ENCAP=%s on every host: %w",
			k.Title, k.Name, k.Module(v6), encap.VXLAN.Name, err)
	}
	return nil // such a device is there already, or it will be told when one is made
}

func notOurs(l netlink.Link) error {
	return &link.StrangerError{Name: l.Attrs().Name, Kind: l.Type()}
}

// remove deletes the devices, gvtunx with gvtun.
func remove() error {
	if err := removeOurs(Port, "veth"); err != nil {
		return err
	}
	for kind, name := range wires {
		if err := removeOurs(name, kind); err != nil {
			return err
		}
	}
	return removeProbe()
}

// removeOurs deletes the interface called name, if it is of a kind. None there is no error.
func removeOurs(name, kind string) error {
	l, err := netlink.LinkByName(name)
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone {
		return nil
	}
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	if l.Type() != kind && !isOf(l, kind) {
		return notOurs(l)
	}
	return link.Delete(name)
}

// up sets all three up: only now that the programs are attached, so that nothing
// gets past them.
func (t *Tunnel) up() error {
	for _, name := range []string{peer, Port, t.wire()} {
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
	if taken := errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EBUSY); taken && !t.cfg.Kind.Ports() {
		return fmt.Errorf("%s %s: another %s device of this host takes all packets of that protocol (`ip -d link show type %s` names it, by `external`): remove it, or set GRAPEVINE_ENCAP=%s on every host: %w",
			verb, t.wire(), t.cfg.Kind.Title, t.cfg.Kind.Device(t.cfg.V6), encap.VXLAN.Name, err)
	}
	geneve := t.cfg.Kind.Name == encap.Geneve.Name && (errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EPERM)) // its words for the same
	if geneve || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("%s %s: UDP port %d is taken by another %s device or program of this host (Docker Swarm uses %d): "+
			"set GRAPEVINE_VXLAN_PORT to another one, the same on every host: %w", verb, t.wire(), t.cfg.UDPPort, t.cfg.Kind.Title, encap.VXLAN.Port, err)
	}
	return fmt.Errorf("%s %s: %w", verb, t.wire(), err)
}
