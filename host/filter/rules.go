package filter

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/nft"
)

// priority of the chains: before those of iptables' filter (0), so that what is dropped
// here is in nobody's counts. It matters for nothing else.
const priority = -10

// Names of sets.
const (
	containers = "containers" // gv0 and Docker's bridges
	bridges    = "bridges"
	closed     = "closed"
	guests     = "guests"
	ports      = "ports"
	vxlans     = "vxlans"
	resolver   = "resolver"
	transports = "transports" // TCP and UDP
	vteps      = "vteps"      // with 4 or 6 behind it, as the next ones
	reached    = "reached"
	own        = "own"
	between    = "between" // hosts: reached and own
	internal   = "internal"
	hosts      = "hosts"
	secure     = "secure"
	encrypting = "encrypting" // the devices that do
	cluster    = "cluster"
	ranges     = "ranges"
	elsewhere  = "elsewhere"
	open       = "open"
	claimed    = "claimed"
	exposed    = "exposed"
	translated = "translated" // whose addresses NAT changes
	gateways   = "gateways"
	beside     = "beside"   // subnets of bridges
	bridging   = "bridging" // this host's addresses there
)

// table makes the rules of a Config, as `nft list table inet grapevine` shows them; fib: the
// kernel has that expression.
func table(name string, cfg Config, fib bool) nft.Table {
	all := cfg.Bridges
	if cfg.Interface != "" {
		all = append([]string{cfg.Interface}, all...)
	}
	t := nft.Table{Name: name, Family: nft.Inet, Sets: []nft.Set{
		names(containers, all), names(bridges, cfg.Bridges), names(closed, cfg.Closed), names(guests, cfg.Guests),
		{Name: transports, Type: typeProto, Length: 1, Values: [][]byte{{unix.IPPROTO_TCP}, {unix.IPPROTO_UDP}}},
		portSet(ports, cfg.Ports), portSet(vxlans, cfg.VXLANs), portSet(resolver, cfg.Names),
	}}
	var there []netip.Addr
	for _, p := range cfg.Beside {
		there = append(there, p.Addr())
	}
	for _, v6 := range []bool{false, true} {
		t.Sets = append(t.Sets, prefixSet(beside, outermost(cfg.Beside), v6), addrSet(bridging, distinct(there), v6))
		t.Sets = append(t.Sets, addrSet(vteps, cfg.VTEPs, v6), addrSet(reached, cfg.reached(), v6), addrSet(own, cfg.Own, v6), addrSet(between, distinct(slices.Concat(cfg.reached(), cfg.Own)), v6), prefixSet(internal, cfg.Internal, v6), prefixSet(hosts, cfg.Hosts, v6), prefixSet(claimed, cfg.Claimed, v6), prefixSet(translated, cfg.Inside, v6), addrSet(gateways, cfg.Gateways, v6))
	}
	if cfg.Encrypted != "" {
		t.Sets = append(t.Sets, names(encrypting, slices.DeleteFunc([]string{cfg.Encrypted, cfg.Second}, func(name string) bool { return name == "" })), prefixSet(secure, []netip.Prefix{cfg.Secure}, true), prefixSet(cluster, cfg.Cluster, false), prefixSet(cluster, cfg.Cluster, true),
			prefixSet(ranges, cfg.Ranges, false), prefixSet(ranges, cfg.Ranges, true))
	}
	if len(cfg.Open) > 0 {
		t.Sets = append(t.Sets, prefixSet(open, cfg.Open, false), prefixSet(open, cfg.Open, true))
	}
	t.Chains = []nft.Chain{
		{Name: "forward", Type: "filter", Hook: unix.NF_INET_FORWARD, Priority: priority, Rules: forward(cfg)},
		{Name: "input", Type: "filter", Hook: unix.NF_INET_LOCAL_IN, Priority: priority, Rules: input(cfg)},
		{Name: "masqueraded", Type: "filter", Hook: unix.NF_INET_POST_ROUTING, Priority: afterNAT, Rules: masqueraded(cfg)},
	}
	t.Chains = append(t.Chains, claims(cfg.Interface, fib)...)
	if len(cfg.Exposed) > 0 {
		t.Sets = append(t.Sets, portSet(exposed, cfg.Exposed))
		t.Chains = append(t.Chains, shadow(cfg))
	}
	if len(cfg.Served) > 0 {
		t.Chains = append(t.Chains, served(cfg))
	}
	t.Chains = append(t.Chains, posing(cfg))
	if cfg.translates {
		t.Chains = append(t.Chains, leaving(cfg))
	}
	if len(cfg.Elsewhere) > 0 {
		t.Sets = append(t.Sets, prefixSet(elsewhere, cfg.Elsewhere, false), prefixSet(elsewhere, cfg.Elsewhere, true))
		t.Chains = append(t.Chains, bound(cfg))
	}
	if cfg.Encrypted != "" {
		t.Chains = append(t.Chains, encrypted(cfg)...)
	}
	if cfg.IPsec {
		t.Chains = append(t.Chains, byIPsec(cfg)...)
	}
	if fib {
		t.Chains = append(t.Chains, nft.Chain{Name: "prerouting", Type: "filter", Hook: unix.NF_INET_PRE_ROUTING, Priority: beforeNAT, Rules: prerouting(cfg)})
	}
	return t
}

// Priorities of chains beside those of NAT (-100 and 100).
const (
	beforeNAT = -150
	afterNAT  = 150
)

// prerouting are the rules of who sends in a host's name: guests whom this host forwards for
// write what they like into their packets. Other interfaces are not asked for the way back:
// on an underlay of several it need not be the one by which packets come.
func prerouting(cfg Config) (rules []nft.Rule) {
	for _, v6 := range []bool{false, true} {
		claims := src{v6, vteps, false}.in()
		for _, tunnel := range cfg.toTunnels() {
			rules = append(rules, drop("who sends as a host is where that host is", in(guests), claims, tunnel, noWayBack()))
		}
		if v6 {
			rules = append(rules, drop("nor is it hidden in fragments", in(guests), claims, nested(), noWayBack()))
		}
	}
	return rules
}

// masqueraded are the rules of what has become a packet of this host, which others would take
// for its. What is merely routed keeps its sender, whom they know or not.
func masqueraded(cfg Config) (rules []nft.Rule) {
	for _, v6 := range []bool{false, true} {
		from := exprs{nft.CTOriginal(unix.NFT_CT_SRC_IP)}
		if v6 {
			from = exprs{nft.CTOriginal(unix.NFT_CT_SRC_IP6)}
		}
		notOurs := slices.Concat(from, exprs{nft.In(family(own, v6), true)})
		for _, tunnel := range cfg.toTunnels() {
			rules = append(rules, drop("nobody sends VXLAN in this host's name", src{v6, reached, true}.in(), src{v6, own, false}.in(), tunnel, bit(unix.NFT_CT_STATUS, srcNAT), notOurs))
		}
	}
	return rules
}

// input are the rules of what is for this host itself.
func input(cfg Config) []nft.Rule {
	rules := append(narrowing(cfg), drop("containers reach neither VXLAN nor the agent of their host", in(containers), toPorts()))
	if cfg.GRE {
		rules = append(rules, drop("nor GRE", in(containers), gre()))
	}
	if cfg.NoOptions {
		rules = append(rules, drop("Geneve has no options here", cfg.toOwn(), options()))
	}
	for _, v6 := range []bool{false, true} {
		if len(cfg.Own) > 0 {
			// Whoever sent it, by an address that the sender's host does not know for this one's:
			// hosts send to the one that they were told. Others' VXLAN has other addresses.
			rules = append(rules, drop("hosts send VXLAN to the VTEP and to no other address",
				src{v6, vteps, false}.in(), src{v6, own, true}.not(), cfg.toOwn()))
		}
	}
	for _, v6 := range []bool{false, true} {
		icmp := byte(unix.IPPROTO_ICMP)
		if v6 {
			icmp = unix.IPPROTO_ICMPV6
		}
		closed := func(more exprs) exprs {
			return append(append(from(cfg.Interface), src{v6, internal, false}.in()...), more...)
		}
		rules = append(rules,
			accept("answers", closed(state(established))),
			accept("names", closed(exprs{nft.Meta(unix.NFT_META_L4PROTO), nft.In(transports, false), nft.DestinationPort(), nft.In(resolver, false)})),
			accept("ping", closed(exprs{nft.Meta(unix.NFT_META_L4PROTO), nft.Equal([]byte{icmp})})),
			drop("internal networks reach nothing else of their host", closed(nil)))
	}
	return rules
}

// forward are the rules of what is forwarded.
func forward(cfg Config) (rules []nft.Rule) {
	gv, opened := cfg.Interface, len(cfg.Open) > 0
	add := func(r nft.Rule) { rules = append(rules, r) }
	rules = narrowing(cfg)
	for _, v6 := range []bool{false, true} {
		const why = "nobody forges what hosts say to each other"
		to := src{v6, reached, true}
		add(drop(why, in(containers), to.in(), toPorts()))
		if cfg.GRE {
			add(drop(why, in(containers), to.in(), gre()))
		}
		add(drop(why, in(containers), to.in(), fragment(v6)))
		if v6 {
			add(drop(why, in(containers), to.in(), nested()))
		}
	}
	// The switch drops what it sees the port of, to a host of the cluster fragments as well.
	// To the outside they are the traffic of honest containers, and put together only here.
	const away = "containers send no VXLAN to the outside, where it would look like this host's"
	for _, tunnel := range cfg.toTunnels() {
		add(drop(away, from(gv), notTo(gv), tunnel))
	}
	add(drop(away, from(gv), notTo(gv), isFamily(true), nested()))
	for _, v6 := range []bool{false, true} {
		add(accept("hosts reach internal networks", from(gv), to(gv), src{v6, internal, true}.in(), src{v6, hosts, false}.in()))
		add(drop("nobody else does", to(gv), src{v6, internal, true}.in()))
		add(drop("internal networks reach nobody", from(gv), notTo(gv), src{v6, internal, false}.in()))
	}
	add(drop("nor do Docker's", in(closed), to(gv)))
	add(drop("and nobody reaches those", from(gv), out(closed)))
	add(accept("answers", to(gv), state(established)))
	for _, v6 := range []bool{false, true} {
		add(drop("internal networks reach no published port", from(gv), src{v6, internal, false}.in()))
	}
	add(accept("published ports", to(gv), published()))
	for _, v6 := range []bool{false, true} {
		add(accept("hosts reach containers", from(gv), to(gv), src{v6, hosts, false}.in()))
	}
	for _, v6 := range []bool{false, true} {
		if opened {
			add(accept("the outside reaches networks that routers are told of", notIn(containers), to(gv), src{v6, open, true}.in()))
		}
	}
	add(drop("nothing else enters: networks meet in the switch", to(gv)))
	add(accept("answers", from(gv), out(bridges), state(established)))
	add(accept("ports that Docker publishes", from(gv), out(bridges), published()))
	add(drop("nothing else enters Docker's own networks", from(gv), out(bridges)))
	return rules
}

type exprs = []nft.Expr

func drop(comment string, parts ...exprs) nft.Rule {
	return rule(comment, append(parts, exprs{nft.Counter(), nft.Drop()}))
}

func accept(comment string, parts ...exprs) nft.Rule {
	return rule(comment, append(parts, exprs{nft.Accept()}))
}

func rule(comment string, parts []exprs) nft.Rule {
	r := nft.Rule{Comment: comment}
	for _, p := range parts {
		r.Exprs = append(r.Exprs, p...)
	}
	return r
}

func from(dev string) exprs { return exprs{nft.Meta(unix.NFT_META_IIFNAME), nft.Equal(nft.Name(dev))} }

func to(dev string) exprs { return exprs{nft.Meta(unix.NFT_META_OIFNAME), nft.Equal(nft.Name(dev))} }

func notTo(dev string) exprs {
	return exprs{nft.Meta(unix.NFT_META_OIFNAME), nft.NotEqual(nft.Name(dev))}
}
func in(set string) exprs { return exprs{nft.Meta(unix.NFT_META_IIFNAME), nft.In(set, false)} }
func notIn(set string) exprs {
	return exprs{nft.Meta(unix.NFT_META_IIFNAME), nft.In(set, true)}
}
func out(set string) exprs { return exprs{nft.Meta(unix.NFT_META_OIFNAME), nft.In(set, false)} }

// toPorts is what is for the ports of VXLAN or gossip. Conntrack, which the rules ask, has
// put fragments together before.
func toPorts() exprs {
	return exprs{nft.Meta(unix.NFT_META_L4PROTO), nft.In(transports, false), nft.DestinationPort(), nft.In(ports, false)}
}

// toVXLAN is what is for the VXLAN port of a host.
func toVXLAN() exprs { return append(udp(), nft.DestinationPort(), nft.In(vxlans, false)) }

// toTunnels is what is for the tunnel of a host, each kind of it: GRE has no ports, and is all of a protocol.
func (c Config) toTunnels() []exprs {
	if c.GRE {
		return []exprs{toVXLAN(), gre()}
	}
	return []exprs{toVXLAN()}
}

// toOwn is what is for a tunnel such as this host's.
func (c Config) toOwn() exprs {
	if c.VXLAN == 0 {
		return gre()
	}
	return udpTo(c.VXLAN)
}

// gre is all of that protocol. Fragments say which it is, and of IPv6 the kernel looks behind other headers.
func gre() exprs {
	return exprs{nft.Meta(unix.NFT_META_L4PROTO), nft.Equal([]byte{unix.IPPROTO_GRE})}
}

func udpTo(port uint16) exprs {
	return append(udp(), nft.DestinationPort(), nft.Equal(nft.Port(port)))
}

func udp() exprs {
	return exprs{nft.Meta(unix.NFT_META_L4PROTO), nft.Equal([]byte{unix.IPPROTO_UDP})}
}

// nested is an IPv6 packet that has a fragment header yet, after conntrack has put the outer
// fragments together.
func nested() exprs {
	return exprs{nft.Extension(unix.IPPROTO_FRAGMENT), nft.Equal([]byte{1})}
}

// options is a packet of Geneve with options, or of another version than 0 (RFC 8926, 3.4): the first byte behind UDP.
func options() exprs {
	return exprs{nft.Payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 8, 1), nft.NotEqual([]byte{0})}
}

func noWayBack() exprs { return exprs{nft.WayBack(), nft.Equal([]byte{0})} }

// fragment is what is no packet's beginning, should conntrack leave any. An IPv6 fragment
// has a header of its own, which is the first one here.
func fragment(v6 bool) exprs {
	if v6 {
		return exprs{nft.Payload(unix.NFT_PAYLOAD_NETWORK_HEADER, 6, 1), nft.Equal([]byte{unix.IPPROTO_FRAGMENT})}
	}
	return exprs{nft.Payload(unix.NFT_PAYLOAD_NETWORK_HEADER, 6, 2), nft.Masked([]byte{0x1f, 0xff}), nft.NotEqual([]byte{0, 0})}
}

// Bits of conntrack's states and status (linux/netfilter/nf_conntrack_common.h).
const (
	established = 1<<1 | 1<<2 // and related
	srcNAT      = 1 << 4
	dstNAT      = 1 << 5
)

func state(bits uint32) exprs { return bit(unix.NFT_CT_STATE, bits) }
func published() exprs        { return bit(unix.NFT_CT_STATUS, dstNAT) }

func bit(key, bits uint32) exprs {
	return exprs{nft.CT(key), nft.Masked(binary.NativeEndian.AppendUint32(nil, bits)), nft.NotEqual(make([]byte, 4))}
}

// src is the source or destination of a family, and a set of addresses.
type src struct {
	v6          bool
	set         string
	destination bool
}

func (s src) in() exprs  { return s.look(false) }
func (s src) not() exprs { return s.look(true) }

func (s src) look(not bool) exprs {
	return append(isFamily(s.v6), nft.Addr(s.v6, s.destination), nft.In(family(s.set, s.v6), not))
}

func isFamily(v6 bool) exprs {
	proto := byte(unix.NFPROTO_IPV4)
	if v6 {
		proto = unix.NFPROTO_IPV6
	}
	return exprs{nft.Meta(unix.NFT_META_NFPROTO), nft.Equal([]byte{proto})}
}

func family(set string, v6 bool) string {
	if v6 {
		return set + "6"
	}
	return set + "4"
}

// typeProto is how nft(8) prints numbers of protocols.
const typeProto = 12

func names(set string, devices []string) nft.Set {
	s := nft.Set{Name: set, Type: nft.TypeName, Length: unix.IFNAMSIZ}
	for _, d := range devices {
		s.Values = append(s.Values, nft.Name(d))
	}
	return s
}

func portSet(name string, all []uint16) nft.Set {
	s := nft.Set{Name: name, Type: nft.TypePort, Length: 2}
	for _, p := range all {
		s.Values = append(s.Values, nft.Port(p))
	}
	return s
}

func addresses(name string, v6 bool) nft.Set {
	s := nft.Set{Name: family(name, v6), Type: nft.TypeIPv4, Length: 4}
	if v6 {
		s.Type, s.Length = nft.TypeIPv6, 16
	}
	return s
}

func addrSet(name string, all []netip.Addr, v6 bool) nft.Set {
	s := addresses(name, v6)
	for _, a := range all {
		if a.Is6() == v6 {
			s.Values = append(s.Values, nft.Bytes(a))
		}
	}
	return s
}

func prefixSet(name string, all []netip.Prefix, v6 bool) nft.Set {
	s := addresses(name, v6)
	s.Interval = true
	for _, p := range all {
		if p.Addr().Is6() == v6 {
			s.Values = append(s.Values, nft.Bytes(p.Addr()), after(p))
		}
	}
	return s
}

// after is the first address after a prefix, nil if there is none.
func after(p netip.Prefix) []byte {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	next := last.Next()
	if !next.IsValid() {
		return nil
	}
	return next.AsSlice()
}

func isGone(err error) bool { return errors.Is(err, unix.ENOENT) }

// unsupported says that the kernel knows no tables with owners.
func unsupported(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)
}
