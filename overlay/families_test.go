package overlay

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/encap"
	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// The kernel's datapath takes no flow that looks at a tunnel's addresses of both families (EINVAL): each packet that such a flow is
// for goes through ovs-vswitchd then, whose log has it. What comes from other hosts' VTEPs, and from those inside what encrypts, has
// flows that look at one.
func TestNoFlowLooksAtAddressesOfBothFamilies(t *testing.T) {
	_, b := ovstest.Start(t)
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	secret := true
	inside := addr("fd67:7261:7065:1::1")
	tunnel := KernelTunnel{Bridge: b, Kind: encap.VXLAN, UDPPort: 4789, Source: addr("192.0.2.1"), Inside: func() bool { return secret }, InsideAddr: inside}
	ports := func() map[string]ovs.Port {
		t.Helper()
		for range 2 {
			if _, err := tunnel.Ensure(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		s, err := b.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.Ports
	}
	of := ports()
	if of[TunnelPort].OFPort == 0 || of[InsidePort].OFPort == 0 {
		t.Fatalf("ports %+v, want one for each family", of)
	}
	if _, err := b.SetPorts(t.Context(), []ovs.PortSpec{{Name: "gva", Type: "internal", Role: roleEndpoint}}, nil); err != nil {
		t.Fatal(err)
	}
	in := scene(pipeline.Metadata, map[string]uint32{"gvtun": of[TunnelPort].OFPort, "gva": ports()["gva"].OFPort, "gv0": 100, "gvc": 101, "gvg": 102})
	in.InsidePort = of[InsidePort].OFPort
	in.VTEPs = []pipeline.VTEP{{Addr: addr("192.0.2.2"), Index: 2}, {Addr: addr("192.0.2.3"), Index: 3}}
	for i := range in.Routes {
		if in.Routes[i].VTEP.Is6() {
			in.Routes[i].VTEP = addr("192.0.2.3")
		}
	}
	in.Subnets = append(in.Subnets, pipeline.Subnet{Prefix: prefix("10.131.0.0/22"), VNID: 7, Encrypted: true})
	in.Encrypted = []uint32{7}
	for i := range 2 {
		a := netip.AddrFrom16(addr(fmt.Sprintf("fd67:7261:7065:1::%d", i+2)).As16())
		in.VTEPs = append(in.VTEPs, pipeline.VTEP{Addr: a, Index: uint32(i + 4), Secure: true, Beside: true})
		in.Routes = append(in.Routes, pipeline.Route{Prefix: prefix(fmt.Sprintf("10.131.%d.0/24", i+2)), VNID: 7, VTEP: a})
	}
	in.Groups, in.Neighbours = nil, nil
	flows, err := pipeline.Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.ApplyBundle(t.Context(), pipeline.Diff(nil, flows).Lines()); err != nil {
		t.Fatal(err)
	}
	both := regexp.MustCompile(`Megaflow: .*`)
	for _, c := range []struct {
		port       uint32
		from, want string
	}{
		{in.TunnelPort, "tun_src=192.0.2.2,tun_dst=192.0.2.1,tun_id=5,ip,nw_src=10.128.2.1,nw_dst=10.128.0.7", "tun_src=192.0.2.2"},
		{in.TunnelPort, "tun_src=192.0.2.9,tun_dst=192.0.2.1,tun_id=5,ip,nw_src=10.128.2.1,nw_dst=10.128.0.7", "tun_src=192.0.2.9"},
		{in.InsidePort, "tun_ipv6_src=fd67:7261:7065:1::2,tun_ipv6_dst=fd67:7261:7065:1::1,tun_id=7,ip,nw_src=10.131.2.1,nw_dst=10.131.0.7", "tun_ipv6_src=fd67:7261:7065:1::2"},
	} {
		out, err := b.Appctl(t.Context(), "ofproto/trace", b.Name, fmt.Sprintf("in_port=%d,%s,dl_src=%s,dl_dst=%s", c.port, c.from, pipeline.RouterMAC, pipeline.RouterMAC))
		if err != nil {
			t.Fatal(err)
		}
		flow := string(both.Find(out))
		if !strings.Contains(flow, c.want) || strings.Contains(flow, "tun_src=") == strings.Contains(flow, "tun_ipv6_src=") {
			t.Errorf("from %s: %s", c.from, flow)
		}
	}

	// Without encrypted networks there is one port, at the host's address.
	secret = false
	if of = ports(); of[InsidePort].Name != "" || of[TunnelPort].Options["local_ip"] != "192.0.2.1" {
		t.Errorf("ports without encrypted networks: %+v", of)
	}
}
