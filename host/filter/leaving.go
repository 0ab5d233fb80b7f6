package filter

import (
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/nat"
	"github.com/grapevine-net/grapevine/host/nft"
)

// beforeOthersNAT is the priority of our chain of NAT: the first chain that has an address for a connection's packets
// gives it to them, and those of iptables and, by custom, everybody's are at 100.
const beforeOthersNAT = 99

// leaving is the chain that gives what is served its address, and who calls a published port theirs, before any other
// program's NAT is asked. Rules of iptables say the same (package nat), for kernels without nf_tables.
func leaving(cfg Config) nft.Chain {
	c := nft.Chain{
		Name: "leaving", Type: "nat", Hook: unix.NF_INET_POST_ROUTING, Priority: beforeOthersNAT,
		Rules: append(calling(cfg), accept("and on this host", to("lo"))),
	}
	if len(cfg.Exposed) > 0 {
		c.Rules = append(c.Rules, accept("iptables' rules give it another port as well", fromExposed()))
	}
	for _, s := range nat.Narrowest(cfg.Served) {
		v6 := s.Subnet.Addr().Is6()
		c.Rules = append(c.Rules, rule("what has an egress leaves with its address", []exprs{
			isFamily(v6), {nft.Addr(v6, false)}, inside(s), {nft.Immediate(unix.NFT_REG_1, nft.Bytes(s.Address)), nft.SNAT(v6)},
		}))
	}
	return c
}

// canTranslate reports whether this kernel has NAT in tables of both families (Linux 5.2).
func (t *tables) canTranslate() bool {
	probe := table("grapevine-probe", Config{Interface: "none", translates: true}, t.fib)
	return t.conn.Do(append(probe.Anew(), probe.Remove()...)) == nil
}
