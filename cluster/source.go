package cluster

import (
	"fmt"
	"net/netip"
)

// Options of a network, in Docker's own spelling, with the addresses of a host from which its containers reach
// the outside.
const (
	OptHostIPv4 = "com.docker.network.host_ipv4"
	OptHostIPv6 = "com.docker.network.host_ipv6"
)

// ParseHostAddress reads the value of one of these options. An error says what is wrong.
func ParseHostAddress(option, value string) (netip.Addr, error) {
	a, err := netip.ParseAddr(value)
	family := 4
	if option == OptHostIPv6 {
		family = 6
	}
	if err != nil || a.Is4() != (family == 4) || a.Is4In6() || a.Zone() != "" || !a.IsGlobalUnicast() {
		return netip.Addr{}, fmt.Errorf("option %s=%.60q: must be an IPv%d address of a host, from which this network's containers reach the outside", option, value, family)
	}
	return a, nil
}

// HostAddress is the address from which the network's containers reach the outside; invalid: whatever the host takes.
func (n Network) HostAddress(v6 bool) netip.Addr {
	option := OptHostIPv4
	if v6 {
		option = OptHostIPv6
	}
	a, _ := ParseHostAddress(option, n.Options[option])
	return a
}
