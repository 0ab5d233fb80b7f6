// Package inside leads the connections of this host's containers to services' addresses to their replicas: by rules of
// nftables in each container's own network namespace, before a packet leaves it. So the switch, policies and the fast
// path see the addresses of containers alone, and a replica sees its client's.
//
// The rules do not end with the agent. They are the same for all ports of all services: what is led where is in maps,
// of which a change exchanges what differs, whole or not at all.
package inside
