package filter

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/nft"
)

// Shadow is the chain of what would leave by an exposed port: others know it by this name.
const Shadow = "shadow"

// shadow is the chain behind NAT for containers that would leave by an exposed port: a client's datagrams to the port
// would be answers to them. Our own NAT gives them another port (nat.Config.Exposed); another program's may come before.
// Answers of exposed ports go the other way in their connections. TCP that is open may have begun before the port was
// exposed, and goes on.
func shadow(cfg Config) nft.Chain {
	c := nft.Chain{
		Name: Shadow, Type: "filter", Hook: unix.NF_INET_POST_ROUTING, Priority: afterNAT,
		Rules: []nft.Rule{accept("inside", to(cfg.Interface)), accept("and on this host", to("lo"))},
	}
	const isNew = 1 << 3
	begins := exprs{nft.CT(unix.NFT_CT_DIRECTION), nft.Equal([]byte{0})}
	for _, v6 := range []bool{false, true} {
		key := uint32(unix.NFT_CT_SRC_IP)
		if v6 {
			key = unix.NFT_CT_SRC_IP6
		}
		ours := slices.Concat(isFamily(v6), begins, bit(unix.NFT_CT_STATUS, srcNAT), exprs{nft.CTOriginal(key), nft.In(family(translated, v6), false)})
		const why = "no container leaves by an exposed port"
		c.Rules = append(c.Rules, drop(why, ours, udp(), fromExposed()), drop(why, ours, fromExposed(), state(isNew)))
	}
	return c
}

// fromExposed is what has an exposed port as its source.
func fromExposed() exprs {
	return exprs{nft.Meta(unix.NFT_META_L4PROTO), nft.In(transports, false), nft.Payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2), nft.In(exposed, false)}
}
