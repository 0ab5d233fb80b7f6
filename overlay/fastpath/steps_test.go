package fastpath

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

var devices = map[string]uint32{"a": 11, "b": 12, "c": 13, "d": 14}

// TestSteps: whatever changes, and wherever the agent is killed between two writes, a
// packet is carried only as the flows in force would: the old ones or the new ones
// before and after they are replaced.
func TestSteps(t *testing.T) {
	carried, copied := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		before, after := inputs().Draw(t, "before"), inputs().Draw(t, "after")
		if rapid.Bool().Draw(t, "small change") {
			after = before
			after.Ports = slices.Clone(before.Ports)
			after.Routes = slices.Clone(before.Routes)
			after.Subnets, after.Neighbours = slices.Clone(before.Subnets), slices.Clone(before.Neighbours)
			after.GossipPort = rapid.SampledFrom([]uint16{0, gossipPort}).Draw(t, "gossip port")
			for i := range after.Ports {
				after.Ports[i].Internal = rapid.Bool().Draw(t, "internal")
				after.Ports[i].VNID = rapid.SampledFrom(vnids).Draw(t, "VNID")
			}
			for i := range after.Routes {
				after.Routes[i].VTEP = rapid.SampledFrom(vteps).Draw(t, "VTEP")
			}
			realm(&after, rapid.SampledFrom(realms).Draw(t, "realms"))
		}
		old, young := Compile(before, devices), Compile(after, devices)
		list := rapid.SliceOfN(packets(after, devices), 20, 20).Draw(t, "packets")
		list = append(list, rapid.SliceOfN(packets(before, devices), 20, 20).Draw(t, "packets")...)
		now := old.clone()
		allow := func(step string, laws ...Contents) {
			for _, p := range list {
				v := now.Verdict(p)
				if v == (Verdict{}) {
					continue
				}
				carried++
				if v.Copies != "" {
					copied++
				}
				for _, law := range laws {
					if want := law.Verdict(p); v != want {
						t.Fatalf("%s: %+v is carried as %+v, the flows say %+v", step, p, v, want)
					}
				}
			}
		}
		middle := Between(old, young)
		stepwise(t, &now, middle, func() { allow("narrow", old) })
		allow("flows change", old, young)
		stepwise(t, &now, young, func() { allow("widen", young) })
		if !maps.Equal(now.Locals, young.Locals) || !maps.Equal(now.Ranges, young.Ranges) || !maps.Equal(now.Groups, young.Groups) || now.Gate != young.Gate {
			t.Fatalf("in the end the maps hold %+v, not %+v", now, young)
		}
	})
	if carried < 1000 || copied < 50 {
		t.Errorf("only %d packets were carried, %d of them for groups: the test shows little", carried, copied)
	}
}

// stepwise writes want into now as tables.write does, in some order, and stops between any two writes.
func stepwise(t *rapid.T, now *Contents, want Contents, look func()) {
	sets, deletes := []func(){func() { now.Gate = want.Gate }}, []func(){}
	for _, a := range slices.SortedFunc(maps.Keys(want.Locals), netip.Addr.Compare) {
		sets = append(sets, func() { now.Locals[a] = want.Locals[a] })
	}
	byText := func(a, b netip.Prefix) int { return slices.Compare([]byte(a.String()), []byte(b.String())) }
	for _, p := range slices.SortedFunc(maps.Keys(want.Ranges), byText) {
		sets = append(sets, func() { now.Ranges[p] = want.Ranges[p] })
	}
	byKey := func(a, b pipeline.GroupKey) int {
		return cmp.Or(cmp.Compare(a.VNID, b.VNID), a.Addr.Compare(b.Addr))
	}
	for _, k := range slices.SortedFunc(maps.Keys(want.Groups), byKey) {
		sets = append(sets, func() { now.Groups[k] = want.Groups[k] })
	}
	for _, k := range slices.SortedFunc(maps.Keys(now.Groups), byKey) {
		if _, stays := want.Groups[k]; !stays {
			deletes = append(deletes, func() { delete(now.Groups, k) })
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(now.Locals), netip.Addr.Compare) {
		if _, stays := want.Locals[a]; !stays {
			deletes = append(deletes, func() { delete(now.Locals, a) })
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(now.Ranges), byText) {
		if _, stays := want.Ranges[p]; !stays {
			deletes = append(deletes, func() { delete(now.Ranges, p) })
		}
	}
	for _, list := range [][]func(){sets, deletes} {
		if len(list) == 0 {
			continue
		}
		for _, write := range rapid.Permutation(list).Draw(t, "order") {
			write()
			look()
		}
	}
}

// What is not plain is the switch's.
func TestCompile(t *testing.T) {
	in := pipeline.Input{
		TunnelPort: 1,
		VTEPs:      []pipeline.VTEP{{Addr: vteps[0], Index: 1}},
		Subnets:    []pipeline.Subnet{{Prefix: prefixes("10.128.0.0/22")[0], VNID: 5, Gateway: addrs("10.128.3.1")[0]}},
		Routes: []pipeline.Route{
			{Prefix: prefixes("10.128.0.0/23")[0], VNID: 5},
			{Prefix: prefixes("10.128.2.0/23")[0], VNID: 5, VTEP: vteps[0]},
			{Prefix: prefixes("10.128.1.0/24")[0], VNID: 5, VTEP: vteps[1]},
			{Prefix: prefixes("224.5.0.0/24")[0], VNID: 5, VTEP: vteps[0]},
		},
		Ports: []pipeline.Port{
			{MAC: macs["a"], Addrs: addrs("10.128.0.2", "fd00:1::2"), VNID: 5, Endpoint: "a", Plain: true},
			{MAC: macs["b"], Addrs: addrs("10.128.0.3"), VNID: 5, Endpoint: "b"},
			{MAC: macs["c"], Addrs: addrs("10.128.0.4"), VNID: 5, Endpoint: "c", Plain: true},
		},
	}
	c := Compile(in, map[string]uint32{"a": 11, "b": 12})
	mac := [6]byte(macs["a"])
	for text, want := range map[string]Local{
		"10.128.0.2": {11, mac, 5, true, addrs("10.128.3.1")[0], 0, false}, "fd00:1::2": {11, mac, 5, true, netip.Addr{}, 0, false},
		"10.128.0.3": {}, // nobody said that it is plain
		"10.128.0.4": {}, // its device is not known
	} {
		if got, there := c.Locals[netip.MustParseAddr(text)]; !there || got != want {
			t.Errorf("%s is %+v, %v", text, got, there)
		}
	}
	for text, want := range map[string]Verdict{
		"10.128.2.9":   {VTEP: vteps[0], VNID: 5},
		"10.128.3.1":   {}, // the gateway, though within the range
		"10.128.1.9":   {}, // of an unknown VTEP
		"10.128.0.9":   {}, // nobody's
		"224.5.0.1":    {}, // multicast, whatever range
		"198.51.100.1": {},
	} {
		p := Packet{Src: addrs("10.128.0.2")[0], Dst: netip.MustParseAddr(text), Ifindex: 11, MAC: mac}
		if got := c.Verdict(p); got != want {
			t.Errorf("to %s: %+v, want %+v", text, got, want)
		}
	}
	in.TunnelPort = 0
	if got := Compile(in, nil).Ranges[prefixes("10.128.2.0/23")[0]]; got != (Range{}) {
		t.Errorf("without a tunnel: %+v", got)
	}
}

func TestSlots(t *testing.T) {
	s := newSlots()
	take := func(key any) uint32 {
		slot, _, err := s.take(key)
		if err != nil {
			t.Fatal(err)
		}
		return slot
	}
	s.adopt("x", firstSlot+3)
	if a := take("a"); a == firstSlot+3 || a < firstSlot {
		t.Errorf("a has slot %d", a)
	}
	if take("x") != firstSlot+3 {
		t.Error("x lost its slot")
	}
	s.release("x")
	if got := take("y"); got != firstSlot+3 {
		t.Errorf("y has slot %d, not x's", got)
	}
	seen := map[uint32]bool{}
	for _, slot := range s.of {
		seen[slot] = true
	}
	for i := range maxSlots - firstSlot - len(s.of) {
		slot := take(i)
		if seen[slot] {
			t.Fatalf("slot %d is two keys'", slot)
		}
		seen[slot] = true
	}
	if _, _, err := s.take("one more"); err == nil {
		t.Error("no error without a free slot")
	}
}

// What the gateway takes, and what it may send from.
func TestCompileGateway(t *testing.T) {
	in := pipeline.Input{
		TunnelPort: 1, GatewayPort: 2, GatewayMAC: net.HardwareAddr{2, 0, 0, 0, 0, 9}, VXLANPort: vxlanPort, GossipPort: gossipPort,
		VTEP: vtep, VTEPs: []pipeline.VTEP{{Addr: vteps[0], Index: 1}},
		Subnets: []pipeline.Subnet{{Prefix: prefixes("10.128.0.0/22")[0], VNID: 5, Gateway: addrs("10.128.3.1")[0]}},
		Routes:  []pipeline.Route{{Prefix: prefixes("10.128.2.0/23")[0], VNID: 5, VTEP: vteps[0]}},
		Ports: []pipeline.Port{
			{MAC: macs["a"], Addrs: addrs("10.128.0.2", "fd00:1::2"), VNID: 5, Endpoint: "a", Plain: true},
			{MAC: macs["b"], Addrs: addrs("10.128.0.3"), VNID: 5, Endpoint: "b", Plain: true, Internal: true},
		},
	}
	c := Compile(in, map[string]uint32{"a": 11, "b": 12})
	gateway := Verdict{Gateway: true, MAC: [6]byte(in.GatewayMAC)}
	const tcp, udp, ipip = 6, 17, 4
	for _, x := range []struct {
		from, to string
		protocol byte
		port     uint16
		want     bool
	}{
		{"10.128.0.2", "198.51.100.1", tcp, 80, true},
		{"10.128.0.2", "198.51.100.1", udp, gossipPort, true}, // no host's
		{"10.128.0.2", "198.51.100.1", udp, vxlanPort, false},
		{"10.128.0.2", "198.51.100.1", ipip, 0, false},
		{"fd00:1::2", "2001:db8:7::1", tcp, 80, true},
		{"10.128.0.2", "10.128.3.1", udp, 53, true},
		{"10.128.0.2", "10.128.3.1", tcp, gossipPort, false},
		{"10.128.0.2", "192.0.2.1", tcp, 80, true},
		{"10.128.0.2", "192.0.2.2", tcp, 80, true},
		{"10.128.0.2", "192.0.2.2", tcp, gossipPort, false},
		{"10.128.0.2", "127.0.0.1", tcp, 80, false},
		{"10.128.0.2", "169.254.169.254", tcp, 80, false},
		{"10.128.0.3", "10.128.3.1", udp, 53, true}, // internal
		{"10.128.0.3", "198.51.100.1", tcp, 80, false},
		{"10.128.0.3", "192.0.2.2", tcp, 80, false},
	} {
		p := Packet{Src: netip.MustParseAddr(x.from), Dst: netip.MustParseAddr(x.to), Ifindex: 11, MAC: [6]byte(macs["a"]), Protocol: x.protocol, Port: x.port}
		if x.from == "10.128.0.3" {
			p.Ifindex, p.MAC = 12, [6]byte(macs["b"])
		}
		if got := c.Verdict(p); got != gateway && x.want || got != (Verdict{}) && !x.want {
			t.Errorf("%+v: %+v", x, got)
		}
		p.Fragment = true
		if got := c.Verdict(p); got != (Verdict{}) {
			t.Errorf("a fragment, %+v: %+v", x, got)
		}
	}
	for from, want := range map[string]bool{
		"10.128.3.1": true, "198.51.100.1": true, "192.0.2.2": true,
		"10.128.0.2": false, "10.128.1.9": false, "10.128.2.9": false, // containers', which the host never routes
		"240.0.0.2": false, "127.0.0.1": false,
	} {
		got := c.Verdict(Packet{Gateway: true, Src: netip.MustParseAddr(from), Dst: addrs("10.128.0.2")[0]})
		if (got == Verdict{Ifindex: 11, MAC: [6]byte(macs["a"])}) != want || (got == Verdict{}) == want {
			t.Errorf("from %s: %+v", from, got)
		}
	}
}

func macText(b [6]byte) string { return net.HardwareAddr(b[:]).String() }

func (p Packet) String() string {
	if p.Gateway {
		return fmt.Sprintf("%s > %s from the gateway", p.Src, p.Dst)
	}
	if p.From.IsValid() {
		return fmt.Sprintf("%s > %s from VTEP %s, VNID %d", p.Src, p.Dst, p.From, p.VNID)
	}
	return fmt.Sprintf("%s > %s from device %d, MAC %s", p.Src, p.Dst, p.Ifindex, macText(p.MAC))
}
