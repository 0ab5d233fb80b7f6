package filter

import (
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/nft"
)

// bound is the chain of containers that reach the outside by another host, or not at all. The switch sends their packets
// there, and by this host only answers to who came in by it. What is no answer for this host's conntrack, as one that it
// has forgotten, would leave with the host's address: it is dropped. Ports that Docker publishes at the host's own addresses
// lead to its bridges (forward judges who may). Tables of iptables have no such rules.
func bound(cfg Config) nft.Chain {
	c := nft.Chain{
		Name: "elsewhere", Type: "filter", Hook: unix.NF_INET_FORWARD, Priority: priority,
		Rules: []nft.Rule{accept("inside", to(cfg.Interface))},
	}
	for _, v6 := range []bool{false, true} {
		theirs := append(from(cfg.Interface), src{v6, elsewhere, false}.in()...)
		c.Rules = append(c.Rules,
			accept("Docker's own networks, as far as they may", theirs, exprs{nft.Meta(unix.NFT_META_OIFNAME), nft.In(bridges, false)}),
			accept("answers", theirs, exprs{nft.CT(unix.NFT_CT_DIRECTION), nft.Equal([]byte{reply})}),
			accept("hosts of the cluster", theirs, src{v6, vteps, true}.in()),
			drop("what has an egress leaves by the host that holds it", theirs))
	}
	return c
}

// reply is the direction of answers (linux/netfilter/nf_conntrack_tuple_common.h).
const reply = 1
