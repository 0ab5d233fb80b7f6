package filter

import (
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/nft"
)

// byIPsec are the chains of a host whose VXLAN is to go by IPsec, whoever keeps its policies and keys: the kernel is asked
// of each packet whether it leaves by a transformation, and whether it came by one. So nothing passes in the clear while
// there is no policy, be it that a daemon is down, at boot, or while policies change.
func byIPsec(cfg Config) []nft.Chain {
	in, out := exprs{nft.Meta(unix.NFT_META_IIFNAME), nft.NotEqual(nft.Name("lo"))}, notTo("lo")
	if cfg.Encrypted != "" { // what WireGuard has encrypted is not encrypted twice
		in = append(in, nft.Meta(unix.NFT_META_IIFNAME), nft.In(encrypting, true))
		out = append(out, nft.Meta(unix.NFT_META_OIFNAME), nft.In(encrypting, true))
	}
	no := []byte{0}
	bare, toBare := exprs{nft.BySecurity(), nft.Equal(no)}, exprs{nft.ToSecurity(), nft.Equal(no)}
	ours := exprs{nft.Meta(unix.NFT_META_IIF), nft.Equal(make([]byte, 4))} // and not forwarded for others
	return []nft.Chain{
		{Name: "ipsec-in", Type: "filter", Hook: unix.NF_INET_LOCAL_IN, Priority: priority - 1, Rules: []nft.Rule{
			drop("no VXLAN is taken that did not come by IPsec", in, udpTo(cfg.VXLAN), bare),
			drop("nor is it hidden in fragments that did not", in, isFamily(true), nested(), bare),
		}},
		// To whomever: flows to a host that has just joined or moved may be there before its address is known here.
		{Name: "ipsec-out", Type: "filter", Hook: unix.NF_INET_LOCAL_OUT, Priority: priority - 1, Rules: []nft.Rule{
			drop("no VXLAN leaves but by IPsec", out, toVXLAN(), toBare),
		}},
		{Name: "ipsec-last", Type: "filter", Hook: unix.NF_INET_POST_ROUTING, Priority: afterNAT + 1, Rules: []nft.Rule{
			drop("nor what NAT has made another way for", ours, out, toVXLAN(), toBare),
		}},
	}
}
