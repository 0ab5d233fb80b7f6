package filter

import (
	"net"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/nat"
	"github.com/grapevine-net/grapevine/host/nft"
)

// Served is the chain of what leaves with another address than it is to: others know it by this name.
const Served = "served"

// served is the chain behind NAT for subnets that reach the outside from one address: what leaves with another one is
// dropped, whoever has flushed the rules that translate it or put others before them. A packet that is dropped here
// leaves nothing in conntrack, so that the next one of its connection begins anew. Tables of iptables have no chain
// behind NAT: where the kernel has no nf_tables, nothing does this.
func served(cfg Config) nft.Chain {
	c := nft.Chain{
		Name: Served, Type: "filter", Hook: unix.NF_INET_POST_ROUTING, Priority: afterNAT,
		Rules: []nft.Rule{accept("inside", to(cfg.Interface)), accept("and on this host", to("lo"))},
	}
	for _, v6 := range []bool{false, true} {
		key := uint32(unix.NFT_CT_DST_IP)
		if v6 {
			key = unix.NFT_CT_DST_IP6
		}
		if len(cfg.Open) > 0 {
			c.Rules = append(c.Rules, accept("answers to who came in at a container's own address", isFamily(v6), exprs{nft.CTOriginal(key), nft.In(family(open, v6), false)}))
		}
	}
	for _, s := range nat.Narrowest(cfg.Served) {
		v6 := s.Subnet.Addr().Is6()
		key := uint32(unix.NFT_CT_SRC_IP)
		if v6 {
			key = unix.NFT_CT_SRC_IP6
		}
		other := slices.Concat(isFamily(v6), exprs{nft.Addr(v6, false), nft.NotEqual(nft.Bytes(s.Address))})
		c.Rules = append(c.Rules,
			drop("what has an egress leaves with its address", other, exprs{nft.CTOriginal(key)}, inside(s)),
			drop("or not at all", other, exprs{nft.Addr(v6, false)}, inside(s)))
		if slices.ContainsFunc(cfg.Served, func(o nat.Source) bool {
			return o.Subnet.Bits() < s.Subnet.Bits() && o.Subnet.Contains(s.Subnet.Addr())
		}) {
			c.Rules = append(c.Rules, accept("and not with that of the rest of its network", isFamily(v6), exprs{nft.CTOriginal(key)}, inside(s)))
		}
	}
	return c
}

// inside ends the rule for packets for which register 1 is no address of the subnet.
func inside(s nat.Source) exprs {
	first := s.Subnet.Masked().Addr()
	return exprs{nft.Masked(net.CIDRMask(s.Subnet.Bits(), first.BitLen())), nft.Equal(nft.Bytes(first))}
}
