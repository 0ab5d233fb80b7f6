package filter

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/nft"
)

// errNotStrict is what a kernel without nf_tables answers: rules of iptables, which others flush, are no promise.
var errNotStrict = errors.New("this kernel has no nf_tables, without which nothing keeps VXLAN in the clear from leaving this host: load that module, or set GRAPEVINE_ENCRYPTION=off on every host")

// encrypted are the chains of a host that encrypts. What the switch sends leaves by the device that does, and what it
// is given has come by that, whatever addresses it has: addresses prove nothing. Nor does anybody else use the
// device: what is forwarded into it would come out as VXLAN of this host.
func encrypted(cfg Config) []nft.Chain {
	by, notBy := exprs{nft.Meta(unix.NFT_META_IIFNAME), nft.Equal(nft.Name(cfg.Encrypted))}, exprs{nft.Meta(unix.NFT_META_IIFNAME), nft.NotEqual(nft.Name(cfg.Encrypted))}
	fromSecure := append(isFamily(true), nft.Addr(true, false), nft.In(family(secure, true), false))
	begunSecure := exprs{nft.CTOriginal(unix.NFT_CT_SRC_IP6), nft.In(family(secure, true), false)}
	wire := slices.Concat(notTo(cfg.Encrypted), notTo("lo"))
	toSecure := append(isFamily(true), nft.Addr(true, true), nft.In(family(secure, true), false))
	return []nft.Chain{
		{Name: "encrypted-in", Type: "filter", Hook: unix.NF_INET_LOCAL_IN, Priority: priority - 1, Rules: []nft.Rule{
			drop("no VXLAN is taken that was not encrypted", notBy, udpTo(cfg.VXLAN)),
			drop("nor is it hidden in fragments", notBy, isFamily(true), nested()),
			drop("hosts send each other nothing else there", by, exprs{nft.Meta(unix.NFT_META_L4PROTO), nft.In(transports, false), nft.DestinationPort(), nft.NotEqual(nft.Port(cfg.VXLAN))}),
		}},
		{Name: "encrypted-forward", Type: "filter", Hook: unix.NF_INET_FORWARD, Priority: priority - 1, Rules: []nft.Rule{
			drop("nobody sends in this host's name", to(cfg.Encrypted)),
			drop("nor is this host a way for others", by),
		}},
		{Name: "encrypted-out", Type: "filter", Hook: unix.NF_INET_LOCAL_OUT, Priority: priority - 1, Rules: []nft.Rule{
			drop("no VXLAN leaves in the clear", notTo(cfg.Encrypted), toVXLAN()),
		}},
		{Name: "encrypted-last", Type: "filter", Hook: unix.NF_INET_POST_ROUTING, Priority: afterNAT + 1, Rules: []nft.Rule{
			drop("nothing to the hosts inside goes another way", notTo(cfg.Encrypted), toSecure),
			drop("nor from this one inside, whatever NAT makes of where to", wire, fromSecure),
			drop("and of where from", wire, begunSecure),
		}},
	}
}
