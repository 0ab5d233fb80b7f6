package filter

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/nat"
	"github.com/grapevine-net/grapevine/host/nft"
)

// Posing is the chain of who would come to a container with a gateway's address, and is not this host: others know it by this name.
const Posing = "posing"

// calling are the rules of who enters the overlay: the host itself as iptables' rules have it, containers, be it on Docker's bridges,
// and who comes by the proxy with an address of nat.Callers, and everybody else as who they are, whoever would masquerade them. A gateway's address
// is the host's, and policies let it in.
func calling(cfg Config) (rules []nft.Rule) {
	for _, v6 := range []bool{false, true} {
		first, last := nat.CallersEnds(v6)
		caller := exprs{nft.Immediate(unix.NFT_REG_1, nft.Bytes(first)), nft.Immediate(unix.NFT_REG_2, nft.Bytes(last)), nft.SNATRange(v6)}
		enters := append(to(cfg.Interface), isFamily(v6)...)
		rules = append(rules,
			rule("who comes by the proxy is not this host", []exprs{enters, loopback(nft.Addr(v6, false), v6, true), unled(), caller}),
			accept("this host itself", enters, src{v6, gateways, false}.in()),
			accept("by its loopback addresses too, at published ports", enters, loopback(nft.Addr(v6, false), v6, true)),
			accept("other hosts", enters, src{v6, hosts, false}.in()),
			rule("containers are not their host", []exprs{enters, src{v6, translated, false}.in(), caller}),
			// The one that they call may be on their bridge as well, and would answer past the host.
			rule("nor are those of Docker's bridges", []exprs{enters, src{v6, beside, false}.in(), src{v6, bridging, false}.not(), caller}),
			rule("nor is anybody else", []exprs{enters, {nft.Addr(v6, false), nft.SNAT(v6)}}))
	}
	return append(rules, accept("inside", to(cfg.Interface)))
}

// posing is the chain behind NAT for who came to have a gateway's address by the rules of another program.
func posing(cfg Config) nft.Chain {
	c := nft.Chain{Name: Posing, Type: "filter", Hook: unix.NF_INET_POST_ROUTING, Priority: afterNAT}
	begins := exprs{nft.CT(unix.NFT_CT_DIRECTION), nft.Equal([]byte{0})}
	for _, v6 := range []bool{false, true} {
		key := uint32(unix.NFT_CT_SRC_IP)
		if v6 {
			key = unix.NFT_CT_SRC_IP6
		}
		from := nft.CTOriginal(key)
		c.Rules = append(c.Rules, drop("nobody else comes as this host", slices.Concat(to(cfg.Interface), begins, bit(unix.NFT_CT_STATUS, srcNAT)),
			src{v6, gateways, false}.in(), exprs{from, nft.In(family(gateways, v6), true), from, nft.In(family(hosts, v6), true)}, loopback(from, v6, false)),
			drop("nor who comes by the proxy", slices.Concat(to(cfg.Interface), begins, bit(unix.NFT_CT_STATUS, srcNAT)),
				src{v6, gateways, false}.in(), loopback(from, v6, true), unled()))
	}
	return c
}

// unled is what no rule has led from a published port: the proxy speaks for others from loopback addresses, and for the host from
// the gateway's.
func unled() exprs {
	return exprs{nft.CT(unix.NFT_CT_STATUS), nft.Masked(binary.NativeEndian.AppendUint32(nil, dstNAT)), nft.Equal(make([]byte, 4))}
}

// loopback is an address that is a loopback address, or is none.
func loopback(address nft.Expr, v6, is bool) exprs {
	value, mask := []byte{127, 0, 0, 0}, []byte{255, 0, 0, 0}
	if v6 {
		value, mask = append(make([]byte, 15), 1), slices.Repeat([]byte{255}, 16)
	}
	compare := nft.NotEqual(value)
	if is {
		compare = nft.Equal(value)
	}
	return exprs{address, nft.Masked(mask), compare}
}
