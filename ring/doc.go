// Package ring says who owns each number of a number space: IPv4 addresses,
// IPv6 addresses, and VNIDs.
//
// A Ring is a set of claims. A claim (block, version, owner) says that since
// version, owner owns every number of the block; a block is a power-of-two
// aligned range, written as a netip.Prefix. A claim is dominated by another one
// on the same block or on a block around it with a higher version, and a Ring
// keeps exactly the claims that nothing dominates. So the owner of a number is
// the owner in the most specific claim around it, which is also the newest.
//
// Merge is the set of undominated claims of the union. Domination is a strict
// partial order, hence Merge is commutative, associative and idempotent, and a
// Ring is a state-based CRDT.
//
// Safety rests on one rule: only the owner of every number of a block writes a
// new claim on it, with a version above all that it knows inside or around the
// block, durably before it tells anybody. Then the owner of a number always
// knows the newest claim on it, no two claims on a number have the same version,
// and no loss, repetition or reordering of messages can make two hosts believe
// that they own the same number.
//
// VNIDs share the ring: VNID v is the address 0.0.0.0/8 + v. RFC 791 and
// RFC 1122 reserve that block of exactly 2^24 addresses, so no container ever
// has one of them.
package ring
