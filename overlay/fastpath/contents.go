package fastpath

import (
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// Local is what the programs know of an address of this host. Its zero value says:
// the switch decides.
type Local struct {
	Ifindex uint32  // the host's end of the container's veth
	MAC     [6]byte // the container's
	VNID    uint32
	Outside bool // it may leave the cluster, by this host
	// Router is the gateway of the address, which tells the container what is too big;
	// invalid: the destination does.
	Router netip.Addr
	Realm  pipeline.Realm
	// Guarded says that rules are about it: only what the switch has noted is carried (pipeline.Input.Generation).
	Guarded bool
}

// Range is what the programs know of a range of addresses that is not this host's.
// Its zero value says: the switch decides.
type Range struct {
	VTEP  netip.Addr // who has it
	VNID  uint32
	Realm pipeline.Realm
	// To says that the gateway takes what is for it, if VTEP is invalid, and From that the
	// gateway may send from it.
	To   To
	From bool
}

// To is what the flows look at before the gateway takes a packet of a container.
type To uint8

// The values of To, as in bpf/fastpath.c.
const (
	ToGateway To = iota + 1 // an address of the gateway: no port between hosts
	ToHost                  // a host: the same, and no internal network
	ToOutside               // neither VXLAN, nor an internal network
)

// byGateway says that packets of the range are the gateway's.
func (r Range) byGateway() bool { return !r.VTEP.IsValid() && (r.To != 0 || r.From) }

// Gate is what the programs know of the gateway. Its zero value says: the switch decides.
type Gate struct {
	On            bool
	MAC           [6]byte
	VXLAN, Gossip uint16 // ports that containers do not send to; 0: there is none
}

// Contents is all that the programs know. An address that is in neither map is the
// switch's to decide; so is one whose entry is zero. Locals come first, then the
// longest range, and where that says that the switch decides, groups.
type Contents struct {
	Locals map[netip.Addr]Local
	Ranges map[netip.Prefix]Range
	Groups map[pipeline.GroupKey]Group
	Gate   Gate
}

// never are destinations that the switch looks at before any range, or only with the source.
var never = slices.Concat([]netip.Prefix{
	netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("255.255.255.255/32"), netip.MustParsePrefix("ff00::/8"),
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"),
}, pipeline.HostRanges, pipeline.LinkLocalRanges)

// Compile says what the programs may carry of what in's flows would. Devices has the
// index of the host's end of each endpoint's veth; endpoints that are not in it, and
// those that are neither plain nor guarded, are only known as the switch's to decide.
func Compile(in pipeline.Input, devices map[string]uint32) Contents {
	return Contents{Locals: localsOf(in, devices), Ranges: rangesOf(in), Groups: groupsOf(in, devices), Gate: gateOf(in)}
}

func gateOf(in pipeline.Input) Gate {
	if in.GatewayPort == 0 || len(in.GatewayMAC) != 6 {
		return Gate{}
	}
	return Gate{On: true, MAC: [6]byte(in.GatewayMAC), VXLAN: in.VXLANPort, Gossip: in.GossipPort}
}

func localsOf(in pipeline.Input, devices map[string]uint32) map[netip.Addr]Local {
	locals := map[netip.Addr]Local{}
	gateways := map[uint32][]pipeline.Subnet{} // by the VNIDs of ports
	for _, p := range in.Ports {
		gateways[p.VNID] = nil
	}
	for _, s := range in.Subnets {
		if others, here := gateways[s.VNID]; here && s.Gateway.IsValid() {
			gateways[s.VNID] = append(others, s)
		}
	}
	elsewhere := elsewhereOf(in)
	exposed := map[netip.Addr]bool{} // the switch notes by which host the outside comes to these
	for _, x := range in.Exposed {
		exposed[x.Addr] = true
	}
	unheard := map[string]bool{} // the switch drops some of what is of these
	for _, u := range in.Unheard {
		unheard[u.Endpoint] = true
	}
	for _, p := range in.Ports {
		l, guarded := Local{}, p.Guarded && in.Generation != 0
		// One that speaks to all networks and is encrypted speaks to some by another way than others do.
		alike := !p.Encrypted || p.Realm.Number(p.VNID) != 0
		if device := devices[p.Endpoint]; device != 0 && len(p.MAC) == len(l.MAC) && (p.Plain || guarded) && alike && !p.Bare && !unheard[p.Endpoint] {
			l = Local{Ifindex: device, MAC: [6]byte(p.MAC), VNID: p.VNID, Realm: p.Realm, Outside: !p.Internal && !elsewhere[leaver{VNID: p.VNID}], Guarded: guarded}
		}
		for _, a := range p.Addrs {
			locals[a] = Local{}
			if l.Ifindex != 0 && !a.IsLinkLocalUnicast() { // a subnet may be of such
				one := l
				one.Router, one.Outside = router(gateways[p.VNID], a), l.Outside && !exposed[a] && !elsewhere[leaver{p.VNID, a}]
				locals[a] = one
			}
		}
	}
	return locals
}

// leaver is an endpoint's address in a network, or, without one, all of the network.
type leaver struct {
	VNID uint32
	Addr netip.Addr
}

// elsewhereOf are those that do not leave as others do, by their own host.
func elsewhereOf(in pipeline.Input) map[leaver]bool {
	elsewhere := map[leaver]bool{}
	for _, e := range in.Exits {
		if !e.Listed {
			elsewhere[leaver{VNID: e.VNID}] = true
		}
		for _, a := range e.Addrs {
			elsewhere[leaver{e.VNID, a}] = true
		}
	}
	return elsewhere
}

func rangesOf(in pipeline.Input) map[netip.Prefix]Range {
	ranges := make(map[netip.Prefix]Range, len(in.Routes)+2*len(in.Subnets))
	known := make(map[netip.Addr]bool, len(in.VTEPs))
	for _, v := range in.VTEPs {
		known[v.Addr] = in.TunnelPort != 0
	}
	for _, s := range in.Subnets {
		ranges[s.Prefix] = Range{}
	}
	for _, r := range in.Routes {
		ranges[r.Prefix] = Range{}
		// What an encrypted network may meet has another VTEP for that than for others.
		if alike := r.VTEP == r.Secure || !in.MeetsEncrypted(r.VNID, r.Realm); known[r.VTEP] && alike {
			ranges[r.Prefix] = Range{VTEP: r.VTEP, VNID: r.VNID, Realm: r.Realm}
		}
	}
	// No range of IPv6, however wide, says anything about IPv4: they share a map.
	if all := netip.PrefixFrom(netip.IPv4Unspecified(), 0); ranges[all] == (Range{}) {
		ranges[all] = Range{}
	}
	gateways := map[netip.Prefix]bool{}
	for _, s := range in.Subnets {
		if s.Gateway.IsValid() {
			gateways[netip.PrefixFrom(s.Gateway, s.Gateway.BitLen())] = true
		}
	}
	if in.GatewayPort != 0 {
		addOutside(in, ranges, gateways)
	}
	// These the switch matches before the longest range.
	for p := range gateways {
		ranges[p] = Range{}
		if in.GatewayPort != 0 {
			ranges[p] = Range{To: ToGateway, From: true}
		}
	}
	for _, n := range never {
		for p := range ranges {
			if n.Overlaps(p) && p.Bits() >= n.Bits() {
				ranges[p] = Range{}
			}
		}
		ranges[n] = Range{}
	}
	for _, s := range in.Subnets {
		if last := pipeline.Broadcast(s.Prefix); last.IsValid() {
			ranges[netip.PrefixFrom(last, 32)] = Range{} // all of a network may get it, wherever they are
		}
	}
	return ranges
}

// addOutside adds to ranges what is the gateway's: hosts, and all that is in none of the cluster's. So
// what is in one may not come from the gateway, but for its own addresses.
func addOutside(in pipeline.Input, ranges map[netip.Prefix]Range, gateways map[netip.Prefix]bool) {
	subnets, routes := newNest(), newNest()
	for _, s := range in.Subnets {
		subnets.add(s.Prefix)
		routes.add(s.Prefix)
	}
	for _, r := range in.Routes {
		routes.add(r.Prefix)
	}
	hosts := []netip.Addr{in.VTEP}
	for _, v := range in.VTEPs {
		hosts = append(hosts, v.Addr)
	}
	for _, a := range hosts {
		if p := netip.PrefixFrom(a, a.BitLen()); a.IsValid() && a.Zone() == "" && !routes.covers(p) && !gateways[p] {
			ranges[p] = Range{To: ToHost}
		}
	}
	for _, all := range []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)} {
		if !routes.covers(all) {
			ranges[all] = Range{To: ToOutside}
		}
	}
	for p, r := range ranges {
		if !r.VTEP.IsValid() && !subnets.covers(p) {
			r.From = true
			ranges[p] = r
		}
	}
}

// nest is a set of prefixes.
type nest struct {
	in   map[netip.Prefix]bool
	bits map[int]bool
}

func newNest() nest { return nest{map[netip.Prefix]bool{}, map[int]bool{}} }

func (n nest) add(p netip.Prefix) { n.in[p], n.bits[p.Bits()] = true, true }

// covers says whether p is in one of them.
func (n nest) covers(p netip.Prefix) bool {
	for bits := range n.bits {
		if bits > p.Bits() {
			continue
		}
		if wide, err := p.Addr().Prefix(bits); err == nil && n.in[wide] {
			return true
		}
	}
	return false
}

// routed is what the ranges of an input are made of.
func routed(in pipeline.Input) pipeline.Input {
	return pipeline.Input{TunnelPort: in.TunnelPort, GatewayPort: in.GatewayPort, Encrypted: in.Encrypted, VTEP: in.VTEP, VTEPs: slices.Clone(in.VTEPs), Subnets: slices.Clone(in.Subnets), Routes: slices.Clone(in.Routes)}
}

// sameRanges reports whether two inputs have the same ranges.
func sameRanges(a, b pipeline.Input) bool {
	return a.TunnelPort == b.TunnelPort && a.GatewayPort == b.GatewayPort && slices.Equal(a.Encrypted, b.Encrypted) && a.VTEP == b.VTEP && slices.Equal(a.Subnets, b.Subnets) && slices.Equal(a.Routes, b.Routes) &&
		slices.EqualFunc(a.VTEPs, b.VTEPs, func(v, o pipeline.VTEP) bool { return v.Addr == o.Addr })
}

// router is the gateway of an address: of the longest subnet that it is in.
func router(subnets []pipeline.Subnet, a netip.Addr) (gateway netip.Addr) {
	longest := -1
	for _, s := range subnets {
		if s.Prefix.Contains(a) && s.Prefix.Bits() > longest {
			longest, gateway = s.Prefix.Bits(), s.Gateway
		}
	}
	return gateway
}

// Between is the step from have to want: what is the same in both is carried on, all
// else is the switch's to decide. To take an entry out would not do: it would lay bare
// a wider range, or a range where there was an endpoint. So the keys are those of both.
func Between(have, want Contents) Contents {
	c := Contents{Locals: between(have.Locals, want.Locals), Ranges: between(have.Ranges, want.Ranges), Groups: map[pipeline.GroupKey]Group{}}
	for k, g := range have.Groups { // one that is not there is the switch's, too
		if c.Groups[k] = (Group{}); g == want.Groups[k] {
			c.Groups[k] = g
		}
	}
	if have.Gate == want.Gate {
		c.Gate = want.Gate
	}
	return c
}

func between[K, V comparable](have, want map[K]V) map[K]V {
	out := make(map[K]V, len(want))
	for _, m := range []map[K]V{have, want} {
		for k, v := range m {
			if old, both := have[k]; both && old == want[k] {
				out[k] = v
				continue
			}
			var undecided V
			out[k] = undecided
		}
	}
	return out
}
