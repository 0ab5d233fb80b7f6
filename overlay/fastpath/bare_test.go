package fastpath

import (
	"net/netip"
	"testing"

	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// TestBare is why no packet goes without a header: what two hosts make of one that has VXLAN's, and what they would make of it
// if the receiver took its VNID from the range of its source instead.
func TestBare(t *testing.T) {
	subnet, low, high := netip.MustParsePrefix("10.128.0.0/24"), netip.MustParsePrefix("10.128.0.0/25"), netip.MustParsePrefix("10.128.0.128/25")
	from, to := netip.MustParseAddr("10.128.0.2"), netip.MustParseAddr("10.128.0.130")
	senders, receivers := vteps[0], vteps[1]
	port := func(name string, addr netip.Addr, vnid uint32, plain bool) pipeline.Port {
		return pipeline.Port{OFPort: 3, Endpoint: name, MAC: macs[name], Addrs: []netip.Addr{addr}, VNID: vnid, Plain: plain}
	}
	host := func(own pipeline.Port, other netip.Prefix, at netip.Addr, vnid uint32) Contents {
		return Compile(pipeline.Input{
			TunnelPort: 1,
			Subnets:    []pipeline.Subnet{{Prefix: subnet, VNID: vnid}}, VTEPs: []pipeline.VTEP{{Addr: at, Index: 1}},
			Routes: []pipeline.Route{{Prefix: other, VNID: vnid, VTEP: at}}, Ports: []pipeline.Port{own},
		}, map[string]uint32{own.Endpoint: 7})
	}
	sender := host(port("a", from, 5, true), high, receivers, 5)
	sent := sender.Verdict(Packet{Src: from, Dst: to, Ifindex: 7, MAC: [6]byte(macs["a"])})
	if sent.VTEP != receivers || sent.VNID != 5 {
		t.Fatalf("the sender's host does not send it with VNID 5 to the other one: %+v", sent)
	}
	for _, c := range []struct {
		name         string
		vnid         uint32 // of the subnet, as the receiver knows it
		plain        bool
		header, bare bool // it is delivered by the programs
	}{
		{"both know the same network", 5, true, true, true},
		{"the receiver has heard that the subnet is another network's", 6, true, false, true},
		{"the receiver's switch has to judge it", 5, false, false, false}, // with a header it arrives there
	} {
		receiver := host(port("b", to, c.vnid, c.plain), low, senders, c.vnid)
		arrives := func(vnid uint32) bool {
			return receiver.Verdict(Packet{Src: from, Dst: to, From: senders, VNID: vnid}) != Verdict{}
		}
		if got := arrives(sent.VNID); got != c.header {
			t.Errorf("%s: by its header it is delivered: %v", c.name, got)
		}
		if got := arrives(receiver.lookup(from).VNID); got != c.bare {
			t.Errorf("%s: by the range of its source it would be delivered: %v", c.name, got)
		}
	}
}
