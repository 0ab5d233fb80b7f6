package cluster

import "net/netip"

// Subnets are those of all networks.
func (s *Snapshot) Subnets() (list []netip.Prefix) {
	for n := range All[Subnet](s) {
		list = append(list, n.Prefix)
	}
	return list
}

// InternalSubnets are those whose containers have no way out of their networks.
func (s *Snapshot) InternalSubnets() (list []netip.Prefix) {
	for n := range All[Subnet](s) {
		if of, ok := Get[Network](s, n.Network); ok && of.Internal {
			list = append(list, n.Prefix)
		}
	}
	return list
}
