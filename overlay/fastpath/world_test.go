package fastpath

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

func TestMain(m *testing.M) { ovstest.Main(m) }

// The small world that random inputs and packets are drawn from, so that they meet.
var (
	vteps     = addrs("192.0.2.2", "192.0.2.3", "2001:db8::4")
	inside    = netip.MustParseAddr("fd67:7261:7065:1::2") // where the first of them takes what is encrypted
	vnids     = []uint32{5, 5, 5, 0, 6}
	hosts     = [][]netip.Addr{addrs("240.0.0.2", "fd67:7261:7065::2"), addrs("240.0.0.3"), nil}
	endpoints = []string{"a", "b", "c", "d"}
	macs      = map[string]net.HardwareAddr{
		"a": {2, 0x42, 0, 0, 0, 0xa}, "b": {2, 0x42, 0, 0, 0, 0xb}, "c": {2, 0x42, 0, 0, 0, 0xc}, "d": {2, 0x42, 0, 0, 0, 0xd},
	}
	subnets = prefixes("10.128.0.0/24", "10.128.0.128/25", "10.129.0.0/24", "10.128.0.0/16", "fd00:1::/64", "fd00:2::/64", "224.1.0.0/16", "127.1.0.0/16", "169.254.1.0/24")
	numbers = addrs(
		"10.128.0.1", "10.128.0.2", "10.128.0.3", "10.128.0.130", "10.128.0.131", "10.128.7.7", "10.129.0.1", "10.129.0.2", "10.129.0.200", "169.254.1.3",
		"fd00:1::1", "fd00:1::2", "fd00:1::8000:2", "fd00:2::1", "fd00:2::2",
	)
	// What all of a subnet get, or some of a network.
	broadcasts = addrs("10.128.0.255", "10.128.255.255", "10.129.0.255")
	groups     = addrs("239.1.2.3", "ff05::1234")
	linkLocal  = addrs("169.254.1.1", "169.254.1.2", "169.254.1.3", "fe80::1:1", "fe80::1:2")
	elsewhere  = addrs("224.0.0.1", "224.1.0.5", "255.255.255.255", "127.0.0.1", "127.1.0.9", "198.51.100.1", "0.0.0.0", "ff02::1", "::1", "fe80::1", "::", "2001:db8::9", "240.0.0.2", "240.0.0.9", "fd67:7261:7065::2", "192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::4")
)

func addrs(s ...string) (out []netip.Addr) {
	for _, a := range s {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func prefixes(s ...string) (out []netip.Prefix) {
	for _, p := range s {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

// realms are those that VNIDs may have, the most often of one each.
var realms = []map[uint32]pipeline.Realm{
	nil, nil, {5: 5, 6: 5}, {5: 5, 6: 5}, {5: pipeline.Everywhere}, {6: pipeline.Everywhere}, {5: pipeline.Everywhere, 6: pipeline.Everywhere},
}

// realm gives all objects the realms of their VNIDs.
func realm(in *pipeline.Input, of map[uint32]pipeline.Realm) {
	for i, s := range in.Subnets {
		in.Subnets[i].Realm = of[s.VNID]
	}
	for i, r := range in.Routes {
		in.Routes[i].Realm = of[r.VNID]
	}
	for i, p := range in.Ports {
		in.Ports[i].Realm = of[p.VNID]
	}
	for i, n := range in.Neighbours {
		in.Neighbours[i].Realm = of[n.VNID]
	}
}

// inputs draws what the cluster may know, sound or silly, that compiles to flows.
func inputs() *rapid.Generator[pipeline.Input] {
	return rapid.Custom(func(t *rapid.T) pipeline.Input {
		in := pipeline.Input{
			Round: pipeline.Round, Tunnel: pipeline.HeaderBits, VXLANPort: vxlanPort, GossipPort: gossipPort, VTEP: vtep, Host: addrs("240.0.0.9", "fd67:7261:7065::9"),
			TunnelPort: 1, GatewayPort: 2, GatewayMAC: net.HardwareAddr{2, 0x42, 0, 0, 0, 2},
		}
		for i, v := range vteps {
			if rapid.IntRange(0, 3).Draw(t, "knows "+v.String()) < 3 {
				in.VTEPs = append(in.VTEPs, pipeline.VTEP{Addr: v, Index: uint32(i + 1), Host: hosts[i]})
			}
		}
		secret := rapid.IntRange(0, 2).Draw(t, "encryption") == 0
		if secret && rapid.IntRange(0, 9).Draw(t, "knows "+inside.String()) > 0 {
			in.VTEPs = append(in.VTEPs, pipeline.VTEP{Addr: inside, Index: 9, Host: hosts[0], Secure: true, Beside: true})
		}
		six := rapid.Bool().Draw(t, "the network of VNID 6 is encrypted")
		// Of VNID 0 there may be several.
		encrypted := func(vnid uint32) bool {
			return secret && (vnid == 6 && six || vnid == 0 && rapid.Bool().Draw(t, "encrypted"))
		}
		taken := map[netip.Addr]bool{}
		vnid := rapid.SampledFrom(vnids)
		for _, p := range rapid.SliceOfDistinct(rapid.SampledFrom(subnets), rapid.ID).Draw(t, "subnets") {
			s := pipeline.Subnet{Prefix: p, VNID: vnid.Draw(t, "VNID")}
			s.Encrypted = encrypted(s.VNID)
			if g := p.Addr().Next(); rapid.Bool().Draw(t, "gateway") && !taken[g] {
				s.Gateway, taken[g] = g, true
			}
			in.Subnets = append(in.Subnets, s)
		}
		seen := map[netip.Prefix]bool{}
		route := func(a netip.Addr, bits int, vnid uint32, remote bool) {
			p, _ := a.Prefix(bits)
			if seen[p] {
				return
			}
			seen[p] = true
			r := pipeline.Route{Prefix: p, VNID: vnid}
			if remote {
				r.VTEP = rapid.SampledFrom(vteps).Draw(t, "VTEP")
			}
			if secret && r.VTEP == vteps[0] {
				r.Secure = inside
			}
			if encrypted(r.VNID) {
				r.VTEP = r.Secure
			}
			in.Routes = append(in.Routes, r)
		}
		for range rapid.IntRange(2, 8).Draw(t, "routes") {
			a := rapid.SampledFrom(slices.Concat(numbers, elsewhere[:5], elsewhere[len(elsewhere)-7:])).Draw(t, "of")
			bits := rapid.IntRange(a.BitLen()*3/8, a.BitLen()).Draw(t, "bits")
			route(a, bits, vnid.Draw(t, "VNID"), rapid.IntRange(0, 3).Draw(t, "remote") < 3)
		}
		for _, s := range in.Subnets { // another host has the end of one, its broadcast address in it
			if last := pipeline.Broadcast(s.Prefix); last.IsValid() && rapid.IntRange(0, 2).Draw(t, "the end is another's") == 0 {
				route(last, s.Prefix.Bits()+rapid.IntRange(0, 2).Draw(t, "of it"), s.VNID, true)
			}
		}
		type neighbour struct {
			vnid uint32
			addr netip.Addr
		}
		known := map[neighbour]bool{} // no two of a network have the same
		linkLocals := func(vnid uint32, what string, most int) (out []netip.Addr) {
			for _, a := range rapid.SliceOfN(rapid.SampledFrom(linkLocal), 0, most).Draw(t, what) {
				if n := (neighbour{vnid, a}); !known[n] {
					known[n] = true
					out = append(out, a)
				}
			}
			return out
		}
		for i, e := range endpoints {
			p := pipeline.Port{
				OFPort: uint32(i + 3), MAC: macs[e], VNID: vnid.Draw(t, "VNID"), Endpoint: e,
				Internal: rapid.Bool().Draw(t, "internal"), Plain: rapid.IntRange(0, 5).Draw(t, "plain") < 5,
			}
			p.Encrypted = encrypted(p.VNID)
			for _, a := range rapid.SliceOfN(rapid.SampledFrom(numbers), 1, 5).Draw(t, "addresses of "+e) {
				if !taken[a] {
					taken[a] = true
					p.Addrs = append(p.Addrs, a)
				}
			}
			if len(p.Addrs) > 0 {
				p.LinkLocal = linkLocals(p.VNID, "link-local addresses of "+e, 2)
				in.Ports = append(in.Ports, p)
				if rapid.IntRange(0, 5).Draw(t, "another one's address") == 0 {
					for _, a := range p.Addrs {
						u := pipeline.Unheard{Endpoint: e, Addr: a}
						for _, r := range in.Routes {
							if r.Prefix.Addr().Is4() == a.Is4() && rapid.Bool().Draw(t, "has not heard") {
								u.Ranges = append(u.Ranges, r.Prefix)
							}
						}
						in.Unheard = append(in.Unheard, u)
					}
				}
				if !p.Plain && rapid.IntRange(0, 3).Draw(t, "guarded") > 0 {
					in.Policy.Guards = append(in.Policy.Guards, pipeline.Guard{
						Endpoint: e, Addrs: p.Addrs, LinkLocal: p.LinkLocal, VNID: p.VNID,
						Ingress: true, Egress: rapid.Bool().Draw(t, "egress"), IngressEpoch: 1, EgressEpoch: 1,
					})
				}
			}
		}
		for _, vnid := range []uint32{5, 6} {
			if rapid.IntRange(0, 5).Draw(t, "exit") > 0 {
				continue
			}
			e := pipeline.Exit{VNID: vnid, V4: rapid.Bool().Draw(t, "exit of IPv4"), V6: rapid.Bool().Draw(t, "exit of IPv6"), Track: rapid.Bool().Draw(t, "exit tracks")}
			switch i := rapid.IntRange(-2, len(in.VTEPs)-1).Draw(t, "exit by"); {
			case i == -1:
				e.Here = true
			case secret && vnid == 6 && six: // no other host's, as Plan has it
			case i >= 0:
				e.VTEP, e.Index, e.Hosts = in.VTEPs[i].Addr, in.VTEPs[i].Index, in.VTEPs[i].Host
				for _, s := range in.Subnets {
					if s.VNID == vnid && s.Gateway.IsValid() {
						e.Routers = append(e.Routers, netip.PrefixFrom(s.Gateway, s.Prefix.Bits()))
					}
				}
			}
			if rapid.Bool().Draw(t, "exit of some") {
				e.Listed = true
				for _, p := range in.Ports {
					if p.VNID == vnid && len(p.Addrs) > 0 && rapid.Bool().Draw(t, "exit of "+p.Endpoint) {
						e.Addrs = append(e.Addrs, p.Addrs...)
					}
				}
			}
			in.Exits = append(in.Exits, e)
		}
		for _, v := range vteps {
			n := vnid.Draw(t, "VNID")
			if secret && (n == 0 || n == 6 && six) {
				v = inside // as Plan has it
			}
			for _, a := range linkLocals(n, "link-local addresses behind "+v.String(), 2) {
				in.Neighbours = append(in.Neighbours, pipeline.Neighbour{Addr: a, VNID: n, VTEP: v})
			}
		}
		in.Groups = members(t, in)
		of := rapid.SampledFrom(realms).Draw(t, "realms")
		realm(&in, of)
		// The flows of a VNID are its subnets' and ports': without any it is in no realm, as no range is without a subnet.
		in.Routes = slices.DeleteFunc(in.Routes, func(r pipeline.Route) bool {
			return r.Realm != 0 && !slices.ContainsFunc(in.Subnets, func(s pipeline.Subnet) bool { return s.VNID == r.VNID }) &&
				!slices.ContainsFunc(in.Ports, func(p pipeline.Port) bool { return p.VNID == r.VNID })
		})
		if secret {
			in.Encrypted = []uint32{0}
		}
		if secret && six {
			in.Encrypted = append(in.Encrypted, of[6].Number(6))
		}
		return in
	}).Filter(func(in pipeline.Input) bool {
		_, err := pipeline.Compile(in)
		return err == nil
	})
}

// members draws who gets what is sent to groups and to all, on networks some of which carry that.
func members(t *rapid.T, in pipeline.Input) (list []pipeline.Group) {
	for _, vnid := range []uint32{5, 6} {
		if rapid.IntRange(0, 2).Draw(t, "carries multicast") == 0 {
			continue
		}
		addrs := slices.Clone(groups)
		for _, s := range in.Subnets {
			if last := pipeline.Broadcast(s.Prefix); s.VNID == vnid && last.IsValid() {
				addrs = append(addrs, last)
			}
		}
		for _, a := range addrs {
			g := pipeline.Group{VNID: vnid, Addr: a}
			for i := range in.Ports {
				p := &in.Ports[i]
				if p.VNID != vnid {
					continue
				}
				p.Multicast, g.Encrypted = true, p.Encrypted
				if rapid.Bool().Draw(t, p.Endpoint+" is a member") {
					g.Ports = append(g.Ports, p.OFPort)
				}
			}
			for _, s := range in.Subnets {
				g.Encrypted = g.Encrypted || s.VNID == vnid && s.Encrypted
			}
			for _, v := range in.VTEPs {
				if v.Secure == g.Encrypted && rapid.Bool().Draw(t, v.Addr.String()+" has members") {
					g.VTEPs = append(g.VTEPs, v.Addr)
				}
			}
			slices.SortFunc(g.VTEPs, netip.Addr.Compare)
			list = append(list, g)
		}
	}
	return list
}

// packets draws one that may well be meant for somebody in in.
func packets(in pipeline.Input, device map[string]uint32) *rapid.Generator[Packet] {
	return rapid.Custom(func(t *rapid.T) Packet {
		if p, ok := aimed(t, in, device); ok {
			return p
		}
		all := slices.Concat(numbers, elsewhere, linkLocal, broadcasts, groups)
		p := Packet{Src: rapid.SampledFrom(all).Draw(t, "source"), Dst: rapid.SampledFrom(all).Draw(t, "destination")}
		for p.Dst.Is4() != p.Src.Is4() {
			p.Dst = rapid.SampledFrom(all).Draw(t, "destination")
		}
		if rapid.IntRange(0, 3).Draw(t, "from the gateway") == 0 {
			p.Gateway = true
			return p
		}
		if rapid.Bool().Draw(t, "from the tunnel") {
			p.From = rapid.SampledFrom(append(vteps, inside)).Draw(t, "VTEP")
			p.VNID = rapid.SampledFrom(vnids).Draw(t, "VNID")
			return p
		}
		e := rapid.SampledFrom(endpoints).Draw(t, "endpoint")
		for _, port := range in.Ports {
			if honest := rapid.IntRange(0, 9).Draw(t, "honest") < 9; honest && port.Endpoint == e && port.Addrs[0].Is4() == p.Dst.Is4() {
				p.Src = port.Addrs[0]
			}
		}
		p.Ifindex, p.MAC = device[e], [6]byte(macs[e])
		if rapid.IntRange(0, 9).Draw(t, "another MAC") == 9 {
			p.MAC = [6]byte(macs[rapid.SampledFrom(endpoints).Draw(t, "whose")])
		}
		return p
	})
}

// aimed draws a packet that is likely to be carried, which few random ones are.
func aimed(t *rapid.T, in pipeline.Input, device map[string]uint32) (Packet, bool) {
	kind := rapid.SampledFrom([]string{"any", "local", "out", "out", "in", "in", "another's", "link-local", "group", "group", "group", "leaves", "leaves", "enters"}).Draw(t, "kind")
	if kind == "any" || len(in.Ports) == 0 {
		return Packet{}, false
	}
	a, b := rapid.SampledFrom(in.Ports).Draw(t, "a"), rapid.SampledFrom(in.Ports).Draw(t, "b")
	mine, others := rapid.SampledFrom(a.Addrs).Draw(t, "a's"), rapid.SampledFrom(b.Addrs).Draw(t, "b's")
	p := Packet{Src: mine, Dst: others, Ifindex: device[a.Endpoint], MAC: [6]byte(a.MAC)}
	var there []pipeline.Route
	for _, r := range in.Routes {
		if r.VTEP.IsValid() && r.Prefix.Addr().Is4() == p.Src.Is4() {
			there = append(there, r)
		}
	}
	// Of an encrypted network, and to one that it meets and that is not.
	if p.Src.Is4() == p.Dst.Is4() && len(in.Encrypted) > 0 && kind == "out" && rapid.Bool().Draw(t, "meets") {
		for _, port := range in.Ports {
			for _, r := range there {
				if port.Encrypted && port.Plain && r.VTEP != inside && in.MeetsEncrypted(r.VNID, r.Realm) && port.Addrs[0].Is4() == r.Prefix.Addr().Is4() {
					return Packet{Src: port.Addrs[0], Dst: r.Prefix.Addr(), Ifindex: device[port.Endpoint], MAC: [6]byte(port.MAC)}, true
				}
			}
		}
	}
	if secret := slices.DeleteFunc(slices.Clone(there), func(r pipeline.Route) bool { return r.VTEP != inside }); len(secret) > 0 && rapid.Bool().Draw(t, "encrypted") {
		there = secret
	}
	var gateways []netip.Addr
	for _, s := range in.Subnets {
		if s.Gateway.IsValid() {
			gateways = append(gateways, s.Gateway)
		}
	}
	switch {
	case kind == "leaves":
		p.Dst = rapid.SampledFrom(slices.Concat(elsewhere, gateways)).Draw(t, "to")
	case kind == "enters":
		p = Packet{Src: rapid.SampledFrom(slices.Concat(elsewhere, gateways)).Draw(t, "from"), Dst: mine, Gateway: true}
	case kind == "link-local": // from such an address, or to one, or both
		from, to := append(slices.Clone(a.LinkLocal), a.Addrs...), append(slices.Clone(b.LinkLocal), b.Addrs...)
		for _, n := range in.Neighbours {
			to = append(to, n.Addr)
		}
		p.Src, p.Dst = rapid.SampledFrom(from).Draw(t, "from"), rapid.SampledFrom(to).Draw(t, "to")
	case kind == "group": // of its own network, most of them
		to := slices.Concat(broadcasts, groups)
		for _, g := range in.Groups {
			if g.VNID == a.VNID && a.Addrs[0].Is4() == g.Addr.Is4() {
				to = slices.Concat(to, slices.Repeat([]netip.Addr{g.Addr}, 5))
			}
		}
		p.Dst = rapid.SampledFrom(to).Draw(t, "to")
		for _, own := range a.Addrs {
			if own.Is4() == p.Dst.Is4() {
				p.Src = own
			}
		}
		p.Protocol = 17   // the most likely one in a frame, too
		var come []Packet // from other hosts
		for _, g := range in.Groups {
			for _, r := range in.Routes {
				if r.VTEP.IsValid() && r.VNID == g.VNID && r.Prefix.Addr().Is4() == g.Addr.Is4() {
					come = append(come, Packet{Src: r.Prefix.Addr(), Dst: g.Addr, From: r.VTEP, VNID: r.VNID, Protocol: 17})
				}
			}
		}
		if len(come) > 0 && rapid.Bool().Draw(t, "comes by the tunnel") {
			p = rapid.SampledFrom(come).Draw(t, "what comes")
		}
	case kind == "another's": // all of a's but the device
		p.Ifindex = device[rapid.SampledFrom(endpoints).Draw(t, "device of")]
	case kind != "local" && len(there) > 0:
		r := rapid.SampledFrom(there).Draw(t, "range")
		p.Dst = r.Prefix.Addr()
		if kind == "in" {
			p = Packet{Src: r.Prefix.Addr(), Dst: mine, From: r.VTEP, VNID: r.VNID}
			if r.Secure.IsValid() && rapid.IntRange(0, 3).Draw(t, "by the other VTEP") == 0 {
				p.From = map[bool]netip.Addr{true: vteps[0], false: inside}[r.VTEP == inside]
			}
		}
	}
	return p, p.Src.Is4() == p.Dst.Is4()
}
