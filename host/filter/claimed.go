package filter

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/nft"
)

// Chains of who claims an address of the cluster's: others know them by these names.
const (
	ClaimedIn      = "claimed-in"
	ClaimedForward = "claimed-forward"
)

// claims are the chains of who has an address of the cluster's and is not in it. The switch, and policies, take who has a
// gateway's address for the host itself. What is
// forwarded into the gateway's interface has come by another one, be it a bridge of Docker's: containers reach each other,
// and published ports, by the gateway. To the host itself comes by such a bridge what a container answers that is on both
// networks. Of IPv4 the kernel takes nothing with an address of the host's own; of IPv6 it does.
func claims(gateway string, fib bool) []nft.Chain {
	const why = "nobody outside has an address of the cluster's"
	in := nft.Chain{Name: ClaimedIn, Type: "filter", Hook: unix.NF_INET_LOCAL_IN, Priority: priority - 1}
	on := nft.Chain{Name: ClaimedForward, Type: "filter", Hook: unix.NF_INET_FORWARD, Priority: priority - 1}
	for _, v6 := range []bool{false, true} {
		theirs := src{v6, claimed, false}.in()
		in.Rules = append(in.Rules, drop(why, notFrom("lo"), notIn(containers), theirs))
		on.Rules = append(on.Rules, drop(why, to(gateway), notFrom(gateway), theirs))
	}
	if fib {
		on.Rules = append(on.Rules, drop("nor one of this host's", to(gateway), notFrom(gateway), isFamily(true),
			exprs{nft.SourceType(), nft.Equal(binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL))}))
	}
	return []nft.Chain{in, on}
}

// notFrom is what came by another interface.
func notFrom(dev string) exprs {
	return exprs{nft.Meta(unix.NFT_META_IIFNAME), nft.NotEqual(nft.Name(dev))}
}
