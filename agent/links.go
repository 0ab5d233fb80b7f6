package agent

import (
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/driver"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/overlay"
)

// userspaceLinks are veth pairs for a switch that reads them by packet sockets. Such a
// socket sees a packet before tc does, so the switch's port must not be the container's
// own veth, where the fast path stands:
//
//	container eth0 = gh... ──splice── gx... = gv... ──AF_PACKET── switch
//	               fast path
type userspaceLinks struct {
	driver.HostLinks
	tso bool // the switch does segmentation and checksums for the containers
}

// Prefixes of names beside "gv", the switch's port; the digits after are the same.
const (
	outerPrefix = "gh" // the host's end of the container's veth
	innerPrefix = "gx" // the other end of the switch's port
)

// beside is the name that goes with the port's.
func beside(prefix, port string) string { return prefix + strings.TrimPrefix(port, "gv") }

// outer is the host's end of an endpoint's veth.
func outer(endpointID string) string { return beside(outerPrefix, overlay.PortName(endpointID)) }

// Veth implements driver.Links.
func (l userspaceLinks) Veth(host, peer string, mac net.HardwareAddr, mtu int, alias string) error {
	out, in := beside(outerPrefix, host), beside(innerPrefix, host)
	if err := l.HostLinks.Veth(out, peer, mac, mtu, alias); err != nil {
		return err
	}
	if err := l.HostLinks.Veth(host, in, nil, mtu, alias); err != nil {
		return err
	}
	if err := link.ForUserspace(in, l.tso); err != nil {
		return err
	}
	return errors.Join(link.Consume(host), link.Splice(out, in), link.Splice(in, out), link.NoIPv6Address(in), link.Up(in))
}

// SetMTU implements driver.Links. Nobody may send what the next interface has no room for.
func (l userspaceLinks) SetMTU(host, sandbox string, mtu int) error {
	now, err := link.Get(host)
	if err != nil {
		return err
	}
	set := []func() error{
		func() error { return l.HostLinks.SetMTU(beside(outerPrefix, host), sandbox, mtu) },
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

// Delete implements driver.Links.
func (l userspaceLinks) Delete(host string) error {
	return errors.Join(l.HostLinks.Delete(beside(outerPrefix, host)), l.HostLinks.Delete(host))
}

// Exists implements driver.Links: a port whose container took its own pair with it is
// as good as gone.
func (l userspaceLinks) Exists(name string) bool {
	if strings.HasPrefix(name, "gv") && l.HostLinks.Exists(beside(innerPrefix, name)) && !l.HostLinks.Exists(beside(outerPrefix, name)) {
		return false
	}
	return l.HostLinks.Exists(name)
}
