// Package ipam hands out addresses, network prefixes and VNIDs.
//
// The Allocator is the sole owner of this host's leases. It hands out only what
// the host owns by the ring (package ring), so no two hosts can hand out the
// same number, whatever messages are lost; what it lacks it asks of the peers
// that own it ("ipam.give"). Everything handed out is on disk before it is said.
//
// The Driver answers Docker's IpamDriver calls (libnetwork/docs/ipam.md) with it.
//
// A number that a host owns is free, or it is leased to an endpoint, or it is
// reserved: as a network's first or last address, its gateway, or an auxiliary
// address. Only free numbers are given away. One mutex covers the decision, the
// write to disk and the claim, so that a number is never leased and given away
// at once.
package ipam
