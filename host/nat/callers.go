package nat

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/coreos/go-iptables/iptables"
	"github.com/vishvananda/netlink"
)

// Who calls a published port and is not this host is never seen with a gateway's address, by which containers know their
// host and policies let it in. Two cannot be seen with their own: a container of the cluster, whose answer would not come
// back by the host, and who is served by the proxy, which speaks for it from a loopback address. These are seen with an address of Callers, the same one each time for
// one container, so that they are told apart, and held to their share of what there is room for. It is one that nobody
// has: reserved (RFC 1112, 4), and of a local prefix (RFC 4193). Neither is it one by which hosts speak to containers, since
// a container answers it as it does any client outside.

// Callers are these addresses, of a family.
func Callers(v6 bool) netip.Prefix {
	if v6 {
		return netip.MustParsePrefix("fd67:7261:7065:2::/112")
	}
	return netip.MustParsePrefix("248.0.0.0/16")
}

// CallersEnds are the first and the last of them that are used.
func CallersEnds(v6 bool) (first, last netip.Addr) {
	p := Callers(v6)
	b := p.Addr().AsSlice()
	b[len(b)-2], b[len(b)-1] = 0xff, 0xfe
	last, _ = netip.AddrFromSlice(b)
	return p.Addr().Next(), last
}

// asCaller is the target that gives what a container sends such an address.
func asCaller(f iptables.Protocol) string {
	first, last := CallersEnds(f == iptables.ProtocolIPv6)
	return fmt.Sprintf("SNAT --to-source %v-%v --persistent", first, last)
}

// callerRules have what others forward into the overlay, for published ports, be seen as who sends it, before somebody
// masquerades it, and so gives it the gateway's address; and whom the proxy speaks for. (Package filter does the same before any other program's NAT,
// where the kernel has NAT in nftables.)
func callerRules(cfg Config, sources []netip.Prefix, f iptables.Protocol) (rules []string) {
	const led = "-m conntrack --ctstate DNAT"
	// The host itself comes from there by rules alone, which lead it from a published port.
	rules = append(rules, fmt.Sprintf("-s %v -o %s -m conntrack ! --ctstate DNAT -j %s", loopback(f), cfg.Interface, asCaller(f)))
	for _, p := range sources {
		rules = append(rules,
			fmt.Sprintf("-s %v -o %s -m addrtype --src-type LOCAL %s -j %s", p, cfg.Interface, led, Hairpin),
			fmt.Sprintf("-s %v -o %s %s -j %s", p, cfg.Interface, led, asCaller(f)))
	}
	return append(rules, fmt.Sprintf("-o %s -m addrtype ! --src-type LOCAL %s -j ACCEPT", cfg.Interface, led))
}

// posing are connections of others than this host that came to have a gateway's address, by rules of a former agent or
// of another program. It matches what conntrack knows of them.
type posing struct {
	gateways, hosts []netip.Prefix
	here            map[netip.Addr]bool // this host's addresses
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (p posing) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	from, seen := tuple(flow.Forward.SrcIP, 0).Addr(), tuple(flow.Reverse.DstIP, 0).Addr()
	return from != seen && !from.IsLoopback() && !p.here[from] &&
		slices.ContainsFunc(p.gateways, func(g netip.Prefix) bool { return g.Addr() == seen }) &&
		!slices.ContainsFunc(p.hosts, func(h netip.Prefix) bool { return h.Contains(from) })
}

// endPosing has them begin anew.
func (cfg Config) endPosing() error {
	here, err := localAddrs()
	if err != nil {
		return err
	}
	return endAll(cfg.Gateways, posing{cfg.Gateways, cfg.Hosts, here})
}
