package plane

import (
	"errors"
	"net"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/ovs"
)

// Links makes and deletes veth pairs; package driver says what of them is to be.
type Links interface {
	Veth(host, peer string, mac net.HardwareAddr, mtu int, alias string) error
	SetMTU(host, sandbox string, mtu int) error
	Limit(host, sandbox string, limits link.Limits) error
	CanLag() error
	Received(host string) (bytes uint64, err error)
	Delete(host string) error
	Exists(name string) bool
	Routes(sandbox string, vias []link.Via) error
}

// Links makes containers' interfaces as this host's datapath wants them.
func (p *Plane) Links() Links {
	if p.Bridge.Datapath == ovs.Kernel {
		return kernelLinks{}
	}
	return userspaceLinks{tso: p.tso()}
}

// kernelLinks makes veth pairs in the agent's network namespace.
type kernelLinks struct{}

// Veth implements Links.
func (kernelLinks) Veth(host, peer string, mac net.HardwareAddr, mtu int, alias string) error {
	return link.Veth{Name: host, Peer: peer, PeerMAC: mac, MTU: mtu, Alias: alias}.Ensure()
}

// SetMTU implements Links.
func (kernelLinks) SetMTU(host, sandbox string, mtu int) error {
	return link.SetPairMTU(host, sandbox, mtu)
}

// Limit implements Links.
func (kernelLinks) Limit(host, sandbox string, limits link.Limits) error {
	return link.Limit(host, sandbox, limits)
}

// CanLag implements Links.
func (kernelLinks) CanLag() error { return link.CanLag() }

func (kernelLinks) Received(host string) (uint64, error) { return link.Received(host) }

// Delete implements Links.
func (kernelLinks) Delete(host string) error { return link.Delete(host) }

// Routes implements Links.
func (kernelLinks) Routes(sandbox string, vias []link.Via) error { return link.RoutesIn(sandbox, vias) }

// Exists implements Links. What cannot be looked at is taken to be there.
func (kernelLinks) Exists(name string) bool {
	_, err := link.Get(name)
	return !errors.Is(err, link.ErrNotFound)
}
