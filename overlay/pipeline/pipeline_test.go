package pipeline

import (
	"flag"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write golden files and docs/design/pipeline.md")

// golden compares got with a file, or writes it with -update.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s is not what the code makes (go test ./overlay/pipeline -update):\n%s", path, d)
	}
}

func TestDocIsCurrent(t *testing.T) {
	golden(t, filepath.Join("..", "..", "docs", "design", "pipeline.md"), Markdown())
}

func TestWalkIsComplete(t *testing.T) {
	for _, part := range strings.Split(Markdown(), "These flows carry it out")[1:] {
		if got := strings.Count(part, "goto_table"); got != 10+11+3 {
			t.Errorf("the walk has %d steps that go on, want 24:\n%s", got, part)
		}
	}
}

func addrs(s ...string) []netip.Addr {
	var out []netip.Addr
	for _, a := range s {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

// scene has two networks, a global one, an internal one, nested ranges and both
// address families.
func scene(mode TunnelMode) Input {
	mac := func(b byte) net.HardwareAddr { return net.HardwareAddr{2, 0x42, 0, 0, 0, b} }
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	in := Input{
		Round: Round, Tunnel: mode, TunnelPort: 1, GatewayPort: 2, GatewayMAC: mac(2), VXLANPort: 4789,
		GossipPort: 7947, VTEP: addr("192.0.2.1"),
		Host:  addrs("240.1.0.1", "fd67:7261:7065::1"),
		VTEPs: []VTEP{{Addr: addr("192.0.2.2"), Index: 2, Host: addrs("240.1.0.2", "fd67:7261:7065::2")}, {Addr: addr("192.0.2.3"), Index: 3}},
		Subnets: []Subnet{
			{Prefix: prefix("10.128.0.0/22"), VNID: 5, Gateway: addr("10.128.0.1")},
			{Prefix: prefix("10.129.0.0/22"), VNID: 6},
			{Prefix: prefix("10.130.0.0/22"), VNID: 0, Gateway: addr("10.130.0.1")},
			{Prefix: prefix("fd00:1::/64"), VNID: 5, Gateway: addr("fd00:1::1")},
		},
		Routes: []Route{
			{Prefix: prefix("10.128.0.0/22"), VNID: 5, VTEP: addr("192.0.2.2")},
			{Prefix: prefix("10.128.0.0/24"), VNID: 5},
			{Prefix: prefix("10.128.2.0/24"), VNID: 5, VTEP: addr("192.0.2.3")},
			{Prefix: prefix("10.129.2.0/24"), VNID: 6, VTEP: addr("192.0.2.3")},
			{Prefix: prefix("10.130.2.0/24"), VNID: 0, VTEP: addr("192.0.2.3")},
			{Prefix: prefix("fd00:1::8000:0/97"), VNID: 5, VTEP: addr("192.0.2.2")},
		},
		Ports: []Port{
			{OFPort: 11, MAC: mac(11), Addrs: addrs("10.128.0.11", "fd00:1::11"), LinkLocal: addrs("169.254.1.11", "fe80::11"), VNID: 5, Multicast: true, Endpoint: "blue"},
			{OFPort: 12, MAC: mac(12), Addrs: addrs("10.129.0.12"), VNID: 6, Internal: true, Endpoint: "red"},
			{OFPort: 13, MAC: mac(13), Addrs: addrs("10.130.0.13"), VNID: 0, Endpoint: "global"},
		},
		Neighbours: []Neighbour{{addr("169.254.1.12"), 5, addr("192.0.2.2"), 0, false}, {addr("fe80::12"), 5, addr("192.0.2.3"), 0, true}},
		Groups: []Group{
			{VNID: 5, Addr: addr("224.0.0.251"), Ports: []uint32{11}, VTEPs: addrs("192.0.2.2", "192.0.2.3")},
			{VNID: 5, Addr: addr("255.255.255.255"), Ports: []uint32{11}},
			{VNID: 5, Addr: addr("ff02::fb"), VTEPs: addrs("192.0.2.3")},
		},
	}
	if mode == Metadata {
		in.VTEPs = append(in.VTEPs, VTEP{Addr: addr("2001:db8::4"), Index: 4})
		in.Routes = append(in.Routes, Route{Prefix: prefix("10.128.3.0/24"), VNID: 5, VTEP: addr("2001:db8::4")})
	}
	return in
}

// secret is the scene with a network beside it that is encrypted, on this host and on one that has a VTEP inside beside its
// other one; the third host has none.
func secret(mode TunnelMode) Input {
	in, inside := scene(mode), netip.MustParseAddr("fd67:7261:7065:1::2")
	in.Encrypted = []uint32{7}
	in.VTEPs = append(in.VTEPs, VTEP{Addr: inside, Index: 5, Host: in.VTEPs[0].Host, Secure: true, Beside: true})
	for i := range in.Routes {
		if in.Routes[i].VTEP == in.VTEPs[0].Addr {
			in.Routes[i].Secure = inside
		}
	}
	in.Subnets = append(in.Subnets, Subnet{Prefix: netip.MustParsePrefix("10.131.0.0/22"), VNID: 7, Gateway: netip.MustParseAddr("10.131.0.1"), Encrypted: true})
	in.Routes = append(in.Routes,
		Route{Prefix: netip.MustParsePrefix("10.131.0.0/24"), VNID: 7},
		Route{Prefix: netip.MustParsePrefix("10.131.1.0/24"), VNID: 7, VTEP: inside, Secure: inside},
		Route{Prefix: netip.MustParsePrefix("10.131.2.0/24"), VNID: 7})
	in.Ports = append(in.Ports, Port{OFPort: 14, MAC: net.HardwareAddr{2, 0x42, 0, 0, 0, 14}, Addrs: addrs("10.131.0.14"), VNID: 7, Encrypted: true, Endpoint: "secret"})
	in.Groups = append(in.Groups, Group{VNID: 7, Addr: netip.MustParseAddr("239.1.2.3"), Ports: []uint32{14}, VTEPs: []netip.Addr{inside}, Encrypted: true})
	return in
}

func TestGoldenFlows(t *testing.T) {
	alone := scene(HeaderBits)
	alone.TunnelPort, alone.GatewayPort, alone.VTEPs = 0, 0, nil
	for name, in := range map[string]Input{
		"metadata": scene(Metadata), "headerbits": scene(HeaderBits), "alone": alone,
		"encrypted": secret(HeaderBits), "empty": {Round: Round, Tunnel: Metadata},
	} {
		flows, err := Compile(in)
		if err != nil {
			t.Fatal(name, err)
		}
		var b strings.Builder
		for _, f := range flows {
			b.WriteString(f.String() + "\n")
		}
		golden(t, filepath.Join("testdata", name+".flows"), b.String())
	}
}

func TestCompileRefuses(t *testing.T) {
	for want, change := range map[string]func(*Input){
		"tunnel mode 0":    func(in *Input) { in.Tunnel = 0 },
		"gateway port 2":   func(in *Input) { in.GatewayMAC = nil },
		"has index 0":      func(in *Input) { in.VTEPs[0].Index = 0 },
		"VNID 16777216":    func(in *Input) { in.Subnets[0].VNID = MaxVNID + 1 },
		"range 10.128.0.1": func(in *Input) { in.Routes[0].Prefix = netip.MustParsePrefix("10.128.0.1/22") },
		"neighbour 10.0":   func(in *Input) { in.Neighbours[0].Addr = netip.MustParseAddr("10.0.0.1") },
		"endpoint red":     func(in *Input) { in.Ports[1].OFPort = 0 },
		"two flows":        func(in *Input) { in.Ports[1].Addrs = in.Ports[0].Addrs },
	} {
		in := scene(Metadata)
		change(&in)
		if _, err := Compile(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
}

// TestFlowCount holds the promise that flows grow with hosts, ranges and local
// endpoints: doubling everything at most doubles them.
func TestFlowCount(t *testing.T) {
	in := scene(HeaderBits)
	flows, err := Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	most := 65 + 6*(len(in.VTEPs)+len(in.Subnets)+len(in.Routes)) + 9*len(in.Ports) + 5*2 + 3*len(in.Neighbours) + 2 + 2*len(in.Groups) + 2
	if len(flows) > most {
		t.Errorf("%d flows, want at most %d", len(flows), most)
	}
}

func TestNames(t *testing.T) {
	n := NewNames(scene(Metadata))
	for want, o := range map[string]object{
		"endpoint blue":           endpointObject("blue"),
		"subnet 10.129.0.0/22":    subnetObject(netip.MustParsePrefix("10.129.0.0/22")),
		"vtep 192.0.2.3":          vtepObject(netip.MustParseAddr("192.0.2.3")),
		"range 10.129.2.0/24":     routeObject(netip.MustParsePrefix("10.129.2.0/24")),
		"vnid 6":                  vnidObject(6),
		"drop: VLAN-tagged frame": DropVLAN.object(),
		"":                        {},
	} {
		if got := n.Describe(o.cookie(Round, Forwarding)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := n.Describe(endpointObject("gone").cookie(1, Forwarding)); !strings.HasPrefix(got, "endpoint #") {
		t.Errorf("an unknown endpoint is %q", got)
	}
}
