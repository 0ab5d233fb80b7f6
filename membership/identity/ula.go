package identity

import (
	"crypto/sha256"
	"net/netip"
)

// ULA is the unique local IPv6 prefix of a cluster (RFC 4193, 3.2), a /48 from which
// its networks get theirs: 40 bits made of the cluster's ID, which the seed drew at
// random, so that every host knows it that knows the cluster. "" has none.
func ULA(cluster string) netip.Prefix {
	if cluster == "" {
		return netip.Prefix{}
	}
	sum := sha256.Sum256([]byte("grapevine ULA " + cluster))
	a := [16]byte{0xfd}
	copy(a[1:6], sum[:])
	return netip.PrefixFrom(netip.AddrFrom16(a), 48)
}
