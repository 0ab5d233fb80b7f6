package plane

import (
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/ovs"
)

// userspaceLinks are veth pairs for a switch that reads them by packet sockets. Such a
// socket sees a packet before tc does, so the switch's port must not be the container's
// own veth, where the fast path stands:
//
//	container eth0 = gh... ──splice── gx... = gv... ──AF_PACKET── switch
//	               fast path
type userspaceLinks struct {
	kernelLinks
	tso bool // the switch does segmentation and checksums for the containers
}

// outer is the host's end of an endpoint's veth.
func outer(endpointID string) string { return link.Beside(link.OuterPrefix, link.PortName(endpointID)) }

// inner is the other end of the switch's port of an endpoint.
func inner(endpointID string) string { return link.Beside(link.InnerPrefix, link.PortName(endpointID)) }

// Veth implements Links.
func (l userspaceLinks) Veth(host, peer string, mac net.HardwareAddr, mtu int, alias string) error {
	out, in := link.Beside(link.OuterPrefix, host), link.Beside(link.InnerPrefix, host)
	if err := l.kernelLinks.Veth(out, peer, mac, mtu, alias); err != nil {
		return err
	}
	if err := l.kernelLinks.Veth(host, in, nil, mtu, alias); err != nil {
		return err
	}
	if err := link.ForUserspace(in, l.tso); err != nil {
		return err
	}
	return errors.Join(link.Consume(host), link.Splice(out, in), link.Splice(in, out), link.NoIPv6Address(in), link.Up(in))
}

// SetMTU implements Links. Nobody may send what the next interface has no room for.
func (l userspaceLinks) SetMTU(host, sandbox string, mtu int) error {
	now, err := link.Get(host)
	if err != nil {
		return err
	}
	set := []func() error{
		func() error { return l.kernelLinks.SetMTU(link.Beside(link.OuterPrefix, host), sandbox, mtu) },
		func() error { return link.SetPairMTU(host, "", mtu) },
	}
	if mtu > now.MTU {
		slices.Reverse(set)
	}
	for _, do := range set {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// Limit implements Links: the pair that the container has a part in is the outer one.
func (l userspaceLinks) Limit(host, sandbox string, limits link.Limits) error {
	return l.kernelLinks.Limit(link.Beside(link.OuterPrefix, host), sandbox, limits)
}

func (l userspaceLinks) Received(host string) (uint64, error) {
	return l.kernelLinks.Received(link.Beside(link.OuterPrefix, host))
}

// Delete implements Links.
func (l userspaceLinks) Delete(host string) error {
	return errors.Join(l.kernelLinks.Delete(link.Beside(link.OuterPrefix, host)), l.kernelLinks.Delete(host))
}

// Exists implements Links: a port whose container took its own pair with it is
// as good as gone.
func (l userspaceLinks) Exists(name string) bool {
	if strings.HasPrefix(name, link.PortPrefix) && l.kernelLinks.Exists(link.Beside(link.InnerPrefix, name)) && !l.kernelLinks.Exists(link.Beside(link.OuterPrefix, name)) {
		return false
	}
	return l.kernelLinks.Exists(name)
}

// adoptLinks prepares containers' interfaces for this switch, which may be another one than
// they were made for.
func (p *Plane) adoptLinks() {
	if p.Bridge.Datapath != ovs.Userspace {
		return
	}
	list, err := link.List(link.InnerPrefix)
	for _, l := range list {
		err = errors.Join(err, link.ForUserspace(l.Name, p.tso()))
	}
	if err != nil {
		p.log.Warn("prepare the containers' interfaces for the switch", "err", err)
	}
}

// OwnGone reports whether of an endpoint's interfaces one is gone that the container cannot have
// deleted: with the userspace datapath it has no part in the switch's port, and the pair that it
// has a part in is another one.
func (p *Plane) OwnGone(endpoint string) bool {
	if p.Bridge.Datapath != ovs.Userspace {
		return false
	}
	_, err := link.Get(link.PortName(endpoint))
	return err != nil
}

// RemoveVeths deletes the interfaces of containers that are still attached.
func RemoveVeths() error {
	list, err := linksOfAlias("grapevine")
	errs := []error{err}
	for _, l := range list {
		errs = append(errs, link.Delete(l.Name))
	}
	return errors.Join(errs...)
}

// AnyVeth reports whether there is an interface of a container.
func AnyVeth() (bool, error) {
	list, err := linksOfAlias("grapevine endpoint")
	return len(list) > 0, err
}

// linksOfAlias are the interfaces of containers, and perhaps others of ours, whose alias begins so.
func linksOfAlias(alias string) (all []link.Link, err error) {
	for _, prefix := range []string{link.PortPrefix, link.OuterPrefix} {
		list, fails := link.List(prefix)
		err = errors.Join(err, fails)
		for _, l := range list {
			if strings.HasPrefix(l.Alias, alias) {
				all = append(all, l)
			}
		}
	}
	return all, err
}
