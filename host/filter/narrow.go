package filter

import (
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/nft"
)

// narrowing are the rules of what containers say of how large a packet may be on the way between hosts. Whoever quotes a packet of that
// way in an ICMP error has the kernel send smaller ones for ten minutes, to that host, for all networks; and packets of VXLAN may not be
// put in pieces, so that large ones are lost. No container is on that way.
func narrowing(cfg Config) (rules []nft.Rule) {
	for _, v6 := range []bool{false, true} {
		// The kind of error (RFC 792, RFC 4443 3.2), which hardly any packet is, and the address for which the packet was that it quotes, 8 bytes behind.
		says, to := exprs{nft.Meta(unix.NFT_META_L4PROTO), nft.Equal([]byte{unix.IPPROTO_ICMP}), nft.Payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2), nft.Equal([]byte{3, 4})},
			nft.Payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 8+16, 4)
		if v6 {
			says, to = exprs{nft.Meta(unix.NFT_META_L4PROTO), nft.Equal([]byte{unix.IPPROTO_ICMPV6}), nft.Payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1), nft.Equal([]byte{2})},
				nft.Payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 8+24, 16)
		}
		sets := []string{between}
		if cfg.Encrypted != "" && v6 {
			sets = append(sets, secure)
		}
		for _, set := range sets {
			rules = append(rules, drop("containers say nothing of the way between hosts", says, in(containers), isFamily(v6), exprs{to, nft.In(family(set, v6), false)}))
		}
	}
	return rules
}
