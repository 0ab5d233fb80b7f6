package cluster

import "net/netip"

// ClientLabel is a label that the endpoints of clients have, with the client's name: policies may ask for it.
const ClientLabel = "grapevine.client"

// IsClient says that the endpoint is no container, but a device that comes by WireGuard (grapevine client).
func (e Endpoint) IsClient() bool { return len(e.Client) > 0 }

// Closed are those whose packets have no way out of their networks by a host: of internal networks, and the addresses of
// the clients that come in there.
func (s *Snapshot) Closed(host NodeID) []netip.Prefix {
	list := s.InternalSubnets()
	for e := range Written[Endpoint](s, host) {
		if e.IsClient() && e.Host == host {
			for _, a := range e.Addrs {
				list = append(list, netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	return list
}
