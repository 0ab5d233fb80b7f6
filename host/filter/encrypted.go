package filter

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/nft"
)

// errNotStrict is what a kernel without nf_tables answers: rules of iptables, which others flush, are no promise.
var errNotStrict = errors.New("this kernel has no nf_tables, without which nothing keeps VXLAN in the clear from leaving this host: load that module, or set GRAPEVINE_ENCRYPTION=off on every host")

var errNoTables = errors.New("this kernel has no nf_tables, without which nothing keeps VXLAN in the clear from leaving this host; load that module")

// encrypted are the chains of a host that encrypts. What the switch sends leaves by the device that does, and what it
// is given has come by that, whatever addresses it has: addresses prove nothing. Nor does anybody else use the
// device: what is forwarded into it would come out as VXLAN of this host.
func encrypted(cfg Config) []nft.Chain {
	by, notBy := in(encrypting), exprs{nft.Meta(unix.NFT_META_IIFNAME), nft.In(encrypting, true)}
	elsewhere := exprs{nft.Meta(unix.NFT_META_OIFNAME), nft.In(encrypting, true)}
	fromSecure := append(isFamily(true), nft.Addr(true, false), nft.In(family(secure, true), false))
	begunSecure := append(isFamily(true), nft.CTOriginal(unix.NFT_CT_SRC_IP6), nft.In(family(secure, true), false))
	wire := slices.Concat(elsewhere, notTo("lo"))
	toSecure := append(isFamily(true), nft.Addr(true, true), nft.In(family(secure, true), false))
	anywhere, ofNetworks := exprs(nil), []exprs{nil, nil}
	if cfg.Partly { // of a packet that does not claim to have come from inside nothing is taken for an encrypted network
		anywhere, ofNetworks = fromSecure, []exprs{{nft.Addr(false, false), nft.In(family(cluster, false), false)}, {nft.Addr(true, false), nft.In(family(cluster, true), false)}}
	}
	nothingElse := drop("hosts send each other nothing else there", by, exprs{nft.Meta(unix.NFT_META_L4PROTO), nft.In(transports, false), nft.DestinationPort(), nft.NotEqual(nft.Port(cfg.VXLAN))})
	unencrypted := []nft.Rule{
		drop("no VXLAN is taken that was not encrypted", anywhere, notBy, udpTo(cfg.VXLAN)),
		drop("nor is it hidden in fragments", anywhere, notBy, isFamily(true), nested()),
	}
	// All of networks that are not encrypted comes this way, too: what is asked of IPv4 comes first, and is all that is asked of it.
	// Addresses inside are of IPv6.
	ofIPv4 := accept("addresses inside are of IPv6", isFamily(false))
	taken := append(unencrypted, nothingElse, asContainer(false), ofIPv4, asContainer(true))
	if cfg.Partly {
		// What networks in the clear send over IPv4 comes here, each packet, and is asked one thing. The switch knows nobody by a container's
		// address, or by one of IPv4 inside: no tunnel of it has come from there.
		ofOthers := accept("VXLAN over IPv4 is of networks in the clear", isFamily(false), udpTo(cfg.VXLAN))
		taken = slices.Concat([]nft.Rule{ofOthers, nothingElse, asContainer(false), ofIPv4}, unencrypted, []nft.Rule{asContainer(true)})
	}
	elsewhereTo := accept("what is for nobody in the overlay goes as it likes", src{false, cluster, true}.not())
	chains := []nft.Chain{
		{Name: "encrypted-in", Type: "filter", Hook: unix.NF_INET_LOCAL_IN, Priority: priority - 1, Rules: taken},
		{Name: "encrypted-forward", Type: "filter", Hook: unix.NF_INET_FORWARD, Priority: priority - 1, Rules: []nft.Rule{
			drop("nobody sends in this host's name", out(encrypting)),
			drop("nor is this host a way for others", by),
			asContainer(false), asContainer(true),
		}},
		{Name: "encrypted-away", Type: "filter", Hook: unix.NF_INET_FORWARD, Priority: priority - 1, Rules: []nft.Rule{
			toRanges(cfg.Interface, false, ofNetworks[0]), toRanges(cfg.Interface, true, ofNetworks[1]),
		}},
		{Name: "encrypted-last", Type: "filter", Hook: unix.NF_INET_POST_ROUTING, Priority: afterNAT + 1, Rules: []nft.Rule{
			elsewhereTo, toContainer(cfg.Interface, false), ofIPv4,
			drop("nothing to the hosts inside goes another way", toSecure, wire),
			drop("nor from this one inside, whatever NAT makes of where to", fromSecure, wire),
			drop("and of where from", begunSecure, wire),
			toContainer(cfg.Interface, true),
		}},
	}
	if !cfg.Partly {
		chains = append(chains, nft.Chain{Name: "encrypted-out", Type: "filter", Hook: unix.NF_INET_LOCAL_OUT, Priority: priority - 1, Rules: []nft.Rule{drop("no VXLAN leaves in the clear", elsewhere, toVXLAN())}})
	}
	return chains
}

// toContainer drops what is for a container and leaves otherwise than by the gateway: where that, its route or its
// rule is not there, the kernel takes another way, in the clear.
func toContainer(gateway string, v6 bool) nft.Rule {
	return drop("what is for containers goes by the gateway or not at all", src{v6, cluster, true}.in(), notTo(gateway), notTo("lo"))
}

// asContainer drops what claims a container's address and comes from elsewhere. By a bridge of Docker's comes what a
// container says that is on both networks.
func asContainer(v6 bool) nft.Rule {
	elsewhere := exprs{nft.Meta(unix.NFT_META_IIFNAME), nft.In(containers, true), nft.Meta(unix.NFT_META_IIFNAME), nft.NotEqual(nft.Name("lo"))}
	return drop("nobody elsewhere sends in a container's name", src{v6, cluster, false}.in(), elsewhere)
}

// toRanges drops what containers send to the cluster's ranges and no container has: it may have one tomorrow.
func toRanges(gateway string, v6 bool, of exprs) nft.Rule {
	return drop("what containers send to the cluster's ranges stays here", from(gateway), notTo(gateway), src{v6, ranges, true}.in(), of)
}
