package driver

import (
	"errors"
	"net"

	"github.com/grapevine-net/grapevine/host/link"
)

// HostLinks makes veth pairs in the agent's network namespace.
type HostLinks struct{}

// Veth implements Links.
func (HostLinks) Veth(host, peer string, mac net.HardwareAddr, mtu int, alias string) error {
	return link.Veth{Name: host, Peer: peer, PeerMAC: mac, MTU: mtu, Alias: alias}.Ensure()
}

// SetMTU implements Links.
func (HostLinks) SetMTU(host, sandbox string, mtu int) error {
	return link.SetPairMTU(host, sandbox, mtu)
}

// Delete implements Links.
func (HostLinks) Delete(host string) error { return link.Delete(host) }

// Routes implements Links.
func (HostLinks) Routes(sandbox string, vias []link.Via) error { return link.RoutesIn(sandbox, vias) }

// Exists implements Links. What cannot be looked at is taken to be there.
func (HostLinks) Exists(name string) bool {
	_, err := link.Get(name)
	return !errors.Is(err, link.ErrNotFound)
}
