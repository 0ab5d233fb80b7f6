package pipeline

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// policyScene is rules of every kind for the endpoints of scene.
func policyScene() Policy {
	prefix := netip.MustParsePrefix
	return Policy{
		Guards: []Guard{
			{"blue", addrs("10.128.0.11", "fd00:1::11"), addrs("169.254.1.11", "fe80::11"), 5, true, true, true, true, 3, 4},
			{"global", addrs("10.130.0.13"), nil, 0, true, false, false, false, 65535, 0},
		},
		Classes: []Class{
			{ID: 1, Addrs: addrs("10.128.0.11", "fd00:1::11")},
			{ID: 2, Addrs: addrs("10.128.2.5", "fd00:1::8000:5", "10.130.0.13"), Ranges: []netip.Prefix{prefix("10.128.3.0/24")}},
			{ID: 9, Addrs: addrs("10.128.2.9")}, // no rule names it
		},
		Rules: []PolicyRule{
			{11, Ingress, 10001, Drop, []uint32{1}, false, nil, []netip.Prefix{prefix("198.51.100.0/24"), prefix("2001:db8::/32")}, true, nil, "no outside", nil, 0},
			{12, Ingress, 10000, Accept, []uint32{1, 2}, false, []uint32{1, 2}, nil, false, []PortRange{{6, 80, 80}, {17, 1000, 1999}, {132, 0, 65535}}, "web", nil, 0},
			{13, Ingress, 10000, Accept, []uint32{1}, true, nil, nil, false, []PortRange{{6, 80, 80}, {1, 8, 0}, {58, 128, AnyNumber}}, "ping", nil, 0},
			{14, Egress, 10002, Pass, []uint32{1}, true, nil, nil, true, nil, "as others say", nil, 0},
			{15, Egress, 10000, Accept, []uint32{1}, false, []uint32{2}, []netip.Prefix{prefix("0.0.0.0/0")}, true, nil, "out", nil, 0},
			{16, Ingress, 0, Reject, []uint32{2}, true, nil, nil, true, nil, "else", nil, 0},
		},
	}
}

func policed(mode TunnelMode) Input {
	in := scene(mode)
	in.Policy = policyScene()
	return in
}

func TestGoldenPolicy(t *testing.T) {
	settled := policed(HeaderBits)
	settled.Generation, settled.Secret = 7, 0x12345678
	settled.Ports = slices.Clone(settled.Ports)
	settled.Ports[0].Bare = true
	for i := range settled.Policy.Rules[2:] { // not of the first that accepts
		settled.Policy.Rules[2+i].Slot = uint16(MaxSlot - i)
	}
	goldenPolicy(t, "testdata/policy.flows", policed(Metadata))
	goldenPolicy(t, "testdata/settled.flows", settled)
}

func goldenPolicy(t *testing.T, path string, in Input) {
	without, err := Compile(scene(in.Tunnel))
	if err != nil {
		t.Fatal(err)
	}
	with, err := Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	c := Diff(without, with)
	if len(c.Modify)+len(c.Delete) > 0 {
		t.Errorf("policy changes flows that are there without it: %v %v", c.Modify, c.Delete)
	}
	var b strings.Builder
	for _, f := range c.Add {
		b.WriteString(f.String() + "\n")
	}
	golden(t, path, b.String())
	if got, want := c.Tracked(), addrs("10.128.0.11", "10.130.0.13", "fd00:1::11"); !slices.Equal(got, want) {
		t.Errorf("connections of %v are looked up, want %v", got, want)
	}
}

// TestNothingToEnforce: rules without a guard make no flow.
func TestNothingToEnforce(t *testing.T) {
	in := policed(Metadata)
	in.Policy.Guards = []Guard{{Endpoint: "blue", Addrs: addrs("10.128.0.11")}}
	got, err := Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Compile(scene(Metadata))
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Fatal(err, d)
	}
}

func TestPolicyRefuses(t *testing.T) {
	for want, change := range map[string]func(*Policy){
		"has epoch 0":             func(p *Policy) { p.Guards[0].EgressEpoch = 0 },
		"class has ID 0":          func(p *Policy) { p.Classes[2].ID = 0 },
		"has range 10.128.3.1":    func(p *Policy) { p.Classes[2].Ranges = []netip.Prefix{netip.MustParsePrefix("10.128.3.1/24")} },
		`"ping" has ID 12`:        func(p *Policy) { p.Rules[2].ID = 12 },
		"has direction 3":         func(p *Policy) { p.Rules[2].Direction = 3 },
		"has action 0":            func(p *Policy) { p.Rules[2].Action = 0 },
		"4 has priority 10000":    func(p *Policy) { p.Rules[4].Action = Pass },
		"has priority 20000":      func(p *Policy) { p.Rules[4].Priority = 20000 },
		"have actions 1 and 2":    func(p *Policy) { p.Rules[2].Action = Drop },
		"has block 10.0.0.1/8":    func(p *Policy) { p.Rules[4].Blocks = []netip.Prefix{netip.MustParsePrefix("10.0.0.1/8")} },
		"has ports 2 to 1":        func(p *Policy) { p.Rules[2].Ports = []PortRange{{6, 2, 1}} },
		"has ICMP type 256":       func(p *Policy) { p.Rules[2].Ports = []PortRange{{1, 256, 0}} },
		"has ICMP type 8, code":   func(p *Policy) { p.Rules[2].Ports = []PortRange{{1, 8, 256}} },
		"has ports of protocol 4": func(p *Policy) { p.Rules[2].Ports = []PortRange{{4, 0, 0}} },
		"5000 rules name one": func(p *Policy) {
			for i := range 5000 {
				p.Rules = append(p.Rules, PolicyRule{ID: uint32(1000 + i), Direction: Egress, Action: Drop, Subjects: []uint32{7}})
			}
		},
	} {
		in := policed(Metadata)
		change(&in.Policy)
		if _, err := Compile(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
}

// TestMasks: they match a range, nothing else, and nothing twice.
func TestMasks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.Uint16().Draw(t, "from")
		to := rapid.Uint16Range(from, 65535).Draw(t, "to")
		matched, n := 0, 0
		for value, mask := range masks(from, to) {
			size := int(^mask) + 1
			if value&^mask != 0 || int(value) < int(from) || int(value)+size-1 > int(to) {
				t.Fatalf("%d to %d has %#x/%#x", from, to, value, mask)
			}
			matched, n = matched+size, n+1
		}
		if matched != int(to)-int(from)+1 || n > 30 {
			t.Fatalf("%d to %d: %d masks match %d numbers", from, to, n, matched)
		}
	})
}

// TestAddressOfTwoClasses: what such an address may nobody knows, and nothing passes.
func TestAddressOfTwoClasses(t *testing.T) {
	in := policed(Metadata)
	in.Policy.Classes[2].Addrs = append(in.Policy.Classes[2].Addrs, in.Policy.Classes[1].Addrs[0])
	flows, err := Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range flows {
		c := ParseCookie(f.Cookie)
		if c.Stage == AddressClass && f.Match == "ip,reg6=0xa800205" {
			if n++; f.Actions != drop || c.key() != DropTwoClasses.object().key() {
				t.Errorf("%s", f)
			}
		}
	}
	if n != 1 {
		t.Errorf("%d flows, want 1", n)
	}
}

// TestNewReplica: one more member of a class, which rules name as subject and as peer, is one flow more, and changes none.
func TestNewReplica(t *testing.T) {
	var c Compiler
	in := policed(HeaderBits)
	if _, _, err := c.Compile(in); err != nil {
		t.Fatal(err)
	}
	in.Policy.Classes = slices.Clone(in.Policy.Classes)
	in.Policy.Classes[0].Addrs = append(addrs("10.128.2.77"), in.Policy.Classes[0].Addrs...)
	_, changes, err := c.Compile(in)
	if err != nil || len(changes.Add) != 1 || len(changes.Modify)+len(changes.Delete) != 0 {
		t.Errorf("%v %v", err, changes)
	}
}

// BenchmarkNewReplica: a rule names 10,000 peers, and one more comes.
func BenchmarkNewReplica(b *testing.B) {
	in := policed(HeaderBits)
	in.Policy.Classes = slices.Clone(in.Policy.Classes)
	peers := make([]netip.Addr, 10000)
	for i := range peers {
		peers[i] = netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)})
	}
	var c Compiler
	in.Policy.Classes[1].Addrs = peers
	if _, _, err := c.Compile(in); err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		n++
		in.Policy.Classes = slices.Clone(in.Policy.Classes)
		in.Policy.Classes[1].Addrs = append(slices.Clone(peers), netip.AddrFrom4([4]byte{10, 201, byte(n >> 8), byte(n)}))
		if _, _, err := c.Compile(in); err != nil {
			b.Fatal(err)
		}
	}
}

// TestHandedInCrowds: what the fast path hands over of those who begin no more is judged, and the switch does not remember it.
func TestHandedInCrowds(t *testing.T) {
	in := policed(HeaderBits)
	in.Generation, in.Secret = 7, 0x12345678
	in.Policy.Crowds = []Crowd{{Addr: netip.MustParseAddr("10.128.0.11")}, {}}
	for _, want := range []int{3, 0} { // of the one, and of both families
		flows, err := Compile(in)
		if err != nil {
			t.Fatal(err)
		}
		is := 0
		for _, f := range flows {
			if Stage(f.Table) == Commit && f.Priority == commitUnnoted {
				is++
				if strings.Contains(f.Actions, "commit") {
					t.Errorf("%s notes the connection: %s", f.Match, f.Actions)
				}
			}
		}
		if is != want {
			t.Errorf("%d flows let go on what is handed over, want %d", is, want)
		}
		in.Secret = 0
	}
}

// TestLeft: of endpoints that are gone the addresses are known, and of those alone.
func TestLeft(t *testing.T) {
	in := policed(HeaderBits)
	had, err := Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	gone := in.Ports[0]
	in.Ports = slices.Clone(in.Ports[1:])
	has, err := Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	left := Diff(had, has).Left()
	slices.SortFunc(left, netip.Addr.Compare)
	want := slices.SortedFunc(slices.Values(gone.Addrs), netip.Addr.Compare)
	if len(want) == 0 || !slices.Equal(left, want) {
		t.Errorf("%v have left, want %v", left, want)
	}
	if came := Diff(has, had).Left(); len(came) > 0 {
		t.Errorf("%v are said to have left, and come", came)
	}
	// Of an endpoint that has another's addresses, in the same change; and not of one that only has another port.
	other := gone
	other.Endpoint = "another"
	in.Ports = append(slices.Clone(in.Ports), other)
	handed, err := Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, changes := range []Changes{Diff(had, handed), Diff(had, has).Then(Diff(has, handed))} {
		left := changes.Left()
		if slices.SortFunc(left, netip.Addr.Compare); !slices.Equal(left, want) {
			t.Errorf("%v have another endpoint, want %v", left, want)
		}
	}
	other.OFPort += 100
	in.Ports[len(in.Ports)-1] = other
	moved, err := Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	if left := Diff(handed, moved).Left(); len(left) > 0 {
		t.Errorf("%v are said to have left, and have another port", left)
	}
}
