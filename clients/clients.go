// Package clients says which devices come into networks by WireGuard: a laptop, a phone. Each is an endpoint of the
// host at which it was added, as a container is, with a key in place of a sandbox.
package clients

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
)

// Client is one that can be let in.
type Client struct {
	ID, Name, Network string
	Key               [cluster.WireGuardKeySize]byte
	Addrs             []netip.Addr
	MAC               net.HardwareAddr
	Limits            cluster.Limits
}

// All are the endpoints of the cluster that are clients, by name.
func All(snap *cluster.Snapshot) (list []cluster.Endpoint) {
	for e := range cluster.All[cluster.Endpoint](snap) {
		if e.IsClient() {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b cluster.Endpoint) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return list
}

// On are the clients of a host that have a network to come into.
func On(snap *cluster.Snapshot, host cluster.NodeID) (list []Client) {
	for e := range cluster.Written[cluster.Endpoint](snap, host) {
		mac, err := net.ParseMAC(e.MAC)
		if !e.IsClient() || e.Host != host || err != nil || len(e.Client) != cluster.WireGuardKeySize || Lost(snap, e) != "" {
			continue
		}
		c := Client{ID: e.ID, Name: e.Name, Network: e.Network, Key: [cluster.WireGuardKeySize]byte(e.Client), Addrs: e.Addrs, MAC: mac}
		c.Limits = snap.Limits(e)
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b Client) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return list
}

// Lost says why a client has no network to come into any more; "": it has one.
func Lost(snap *cluster.Snapshot, e cluster.Endpoint) string {
	n, there := cluster.Get[cluster.Network](snap, e.Network)
	if !there || n.Removed {
		return fmt.Sprintf("network %s is removed", e.Network)
	}
	if n.Made != e.Made {
		return fmt.Sprintf("network %s was made anew", e.Network)
	}
	subnets := Subnets(snap, n)
	for _, a := range e.Addrs {
		if !slices.ContainsFunc(subnets, func(s cluster.Subnet) bool { return s.Prefix.Contains(a) }) {
			return fmt.Sprintf("network %s was made anew, and has no subnet with its address %v", e.Network, a)
		}
	}
	return ""
}

// Subnets are those of a network, by address.
func Subnets(snap *cluster.Snapshot, n cluster.Network) (list []cluster.Subnet) {
	for s := range cluster.All[cluster.Subnet](snap) {
		if s.Network == n.Name && !slices.Contains(n.Old, s.Prefix) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b cluster.Subnet) int { return a.Prefix.Addr().Compare(b.Prefix.Addr()) })
	return list
}

// MAC is the address of the interface of a client that has that address, as Docker makes them.
func MAC(a netip.Addr) net.HardwareAddr {
	b := a.AsSlice()
	return append(net.HardwareAddr{0x02, 0x42}, b[len(b)-4:]...)
}

// MTU is that of the client's device on a network whose containers have that one: WireGuard's own packets are to
// pass an Internet line (1500 bytes, by IPv6, with room for PPPoE and the like, as WireGuard's own tools reckon).
func MTU(network int) int { return min(1420, network) }
