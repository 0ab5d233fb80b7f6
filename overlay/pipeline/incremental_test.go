package pipeline

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// genInput makes inputs of few objects that often have something in common: subnets of
// one gateway, networks of one VNID, ranges behind VTEPs that are not there, and endpoints
// of one address, which Compile refuses.
func genInput() *rapid.Generator[Input] {
	return rapid.Custom(func(t *rapid.T) Input {
		few := func(label string) []int {
			return rapid.SliceOfNDistinct(rapid.IntRange(0, 4), 0, 4, rapid.ID[int]).Draw(t, label)
		}
		number := func(label string, n int) int { return rapid.IntRange(0, n).Draw(t, label) }
		four := func(a, b, c, d int) netip.Addr { return netip.AddrFrom4([4]byte{byte(a), byte(b), byte(c), byte(d)}) }
		vtep := func(i int) netip.Addr { return four(192, 0, 2, 1+i) }
		in := Input{
			Round: Round, Tunnel: rapid.SampledFrom([]TunnelMode{Metadata, Metadata, Metadata, HeaderBits}).Draw(t, "mode"),
			TunnelPort: 1, GatewayPort: uint32(min(2, 2*number("gateway", 9))), GatewayMAC: net.HardwareAddr{2, 0, 0, 0, 0, 9}, Host: addrs("240.1.0.1"),
		}
		in.Generation, in.Secret = uint16(number("generation", 2)), uint32(number("secret", 9)/9)
		if number("encryption", 3) > 0 {
			in.Encrypted = []uint32{1}
		}
		for _, i := range few("VTEPs") {
			v := VTEP{Addr: vtep(i), Index: uint32(1 + 10*i + number("index", 1))}
			if number("known", 2) > 0 {
				v.Host = []netip.Addr{four(240, 1, 0, 2+i)}
			}
			if i == 4 { // the first one's other VTEP
				v.Secure, v.Beside, v.Host = true, true, []netip.Addr{four(240, 1, 0, 2)}
			}
			in.VTEPs = append(in.VTEPs, v)
		}
		for _, i := range few("subnets") {
			s := Subnet{Prefix: netip.PrefixFrom(four(10, 128+i/2, 0, 0), 16+i%2), VNID: uint32(number("vnid", 2))}
			if number("has a gateway", 2) > 0 {
				s.Gateway = four(10, 128+i/2, 0, 1)
			}
			s.Encrypted = in.Encrypted != nil && number("encrypted", 2) == 0
			in.Subnets = append(in.Subnets, s)
		}
		for _, i := range few("routes") {
			r := Route{Prefix: netip.PrefixFrom(four(10, 128+i, 0, 0), 24), VNID: uint32(number("vnid", 2))}
			if behind := number("behind", 5); behind < 5 {
				r.VTEP = vtep(behind)
			}
			if in.Encrypted != nil && number("secure", 1) == 0 {
				r.Secure = vtep(4)
			}
			in.Routes = append(in.Routes, r)
		}
		for _, i := range few("ports") {
			p := Port{OFPort: uint32(10 + i), MAC: net.HardwareAddr{2, 0, 0, 0, 0, byte(i)}, VNID: uint32(number("vnid", 2)), Endpoint: fmt.Sprint("endpoint", i), Bare: number("bare", 3) == 3}
			p.Addrs = []netip.Addr{four(10, 128, 0, 10+i+number("same", 6)/6)}
			if number("has one", 2) == 0 {
				p.LinkLocal = []netip.Addr{four(169, 254, 0, i)}
			}
			p.Internal = number("internal", 3) == 0
			p.Encrypted = in.Encrypted != nil && number("encrypted", 2) == 0
			p.Multicast = number("multicast", 1) > 0
			in.Ports = append(in.Ports, p)
		}
		for _, i := range few("neighbours") {
			in.Neighbours = append(in.Neighbours, Neighbour{Addr: four(169, 254, 1, i), VNID: uint32(number("vnid", 2)), VTEP: vtep(i), Multicast: number("multicast", 1) > 0})
			in.Neighbours = append(in.Neighbours, Neighbour{Addr: netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 15: byte(i)}), VNID: uint32(number("vnid", 2)), VTEP: vtep(i), Multicast: number("multicast", 1) > 0})
		}
		for _, i := range few("groups") {
			g := Group{VNID: 1 + uint32(number("vnid", 1)), Addr: four(239, 1, 1, i), Encrypted: in.Encrypted != nil && number("encrypted", 2) == 0}
			if number("group of IPv6", 2) == 0 {
				g.Addr = netip.AddrFrom16([16]byte{0: 0xff, 1: 2, 15: byte(i)})
			}
			for _, j := range few("members") {
				g.Ports = append(g.Ports, uint32(10+j))
			}
			for _, j := range few("hosts with members") {
				g.VTEPs = append(g.VTEPs, vtep(j))
			}
			in.Groups = append(in.Groups, g)
		}
		for _, i := range few("unheard") {
			u := Unheard{Endpoint: fmt.Sprint("endpoint", i), Addr: four(10, 128, 0, 10+i)}
			for _, j := range few("ranges not heard") {
				u.Ranges = append(u.Ranges, netip.PrefixFrom(four(10, 128+j, 0, 0), 24))
			}
			in.Unheard = append(in.Unheard, u)
		}
		for vnid := 1; vnid <= number("exits", 2); vnid++ {
			e := Exit{VNID: uint32(vnid), V4: number("v4", 3) > 0, V6: number("v6", 1) > 0, Track: number("tracks", 1) > 0}
			switch i := number("exit", 2); {
			case i == 0:
				e.Here = true
			case len(in.VTEPs) > 0:
				e.VTEP, e.Index = in.VTEPs[0].Addr, in.VTEPs[0].Index
				e.Hosts, e.Routers = []netip.Addr{netip.MustParseAddr("240.0.0.9")}, []netip.Prefix{netip.MustParsePrefix("10.0.0.1/8")}
			}
			if e.Listed = number("some", 1) > 0; e.Listed {
				for _, p := range in.Ports {
					if p.VNID == e.VNID {
						e.Addrs = append(e.Addrs, p.Addrs...)
					}
				}
				e.Unknown, e.Unheard = number("unknown", 1) > 0, number("unheard", 1) > 0
			}
			in.Exits = append(in.Exits, e)
			in.Own = []netip.Addr{netip.AddrFrom4([4]byte{172, 17, 0, byte(number("own", 2))})}
		}
		if number("policy", 2) > 0 {
			in.Policy = genPolicy().Draw(t, "policy")
		}
		return in
	})
}

// genPolicy makes policies of few objects, whose rules have much in common.
func genPolicy() *rapid.Generator[Policy] {
	return rapid.Custom(func(t *rapid.T) (p Policy) {
		few := func(label string) []int {
			return rapid.SliceOfNDistinct(rapid.IntRange(0, 4), 0, 4, rapid.ID[int]).Draw(t, label)
		}
		number := func(label string, n int) int { return rapid.IntRange(0, n).Draw(t, label) }
		some := func(label string) (ids []uint32) {
			for _, i := range few(label) {
				ids = append(ids, uint32(100+i))
			}
			return ids
		}
		four := func(a, b, c, d int) netip.Addr { return netip.AddrFrom4([4]byte{byte(a), byte(b), byte(c), byte(d)}) }
		for _, i := range few("guards") {
			g := Guard{Endpoint: fmt.Sprint("endpoint", i), Addrs: []netip.Addr{four(10, 128, 0, 10+i)}, IngressEpoch: uint16(1 + number("epoch", 1)), EgressEpoch: 7}
			g.Ingress, g.Egress = number("ingress", 2) > 0, number("egress", 2) > 0
			if number("has one", 2) == 0 {
				g.LinkLocal, g.VNID = []netip.Addr{four(169, 254, 0, i)}, uint32(number("vnid", 2))
			}
			p.Guards = append(p.Guards, g)
		}
		for _, i := range few("classes") {
			c := Class{ID: uint32(100 + i)}
			for _, j := range few("addresses") {
				c.Addrs = append(c.Addrs, four(10, 128, i*number("own", 1), j))
			}
			if number("has a range", 2) == 0 {
				c.Ranges = []netip.Prefix{netip.PrefixFrom(four(10, 128, i, 0), 24)}
			}
			p.Classes = append(p.Classes, c)
		}
		for _, i := range few("rules") {
			r := PolicyRule{ID: uint32(1 + i), Direction: Direction(1 + number("direction", 1)), Subjects: some("subjects"), Label: fmt.Sprint("rule ", i)}
			r.Priority = 100 * i % 3 * number("priority", 1)
			if r.Action = Accept; r.Priority > 0 {
				r.Action = Drop
			}
			if r.AnyPeer = number("any peer", 2) == 0; !r.AnyPeer {
				r.Peers = some("peers")
				r.Blocks = rapid.SliceOfN(rapid.SampledFrom([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("fd00::/8")}), 0, 2).Draw(t, "blocks")
			}
			if r.AnyPort = number("any port", 2) == 0; !r.AnyPort {
				r.Ports = rapid.SliceOfN(rapid.SampledFrom([]PortRange{{6, 80, 80}, {6, 70, 90}, {17, 0, 65535}, {1, 8, AnyNumber}}), 0, 3).Draw(t, "ports")
			}
			r.Slot = uint16(number("slot", 1) * (1 + i))
			p.Rules = append(p.Rules, r)
		}
		for _, i := range few("openings") {
			o := Opening{Rule: uint32(50 + number("rule", 1)), Action: Accept, From: four(10, 128, 0, 10+i%2), To: four(192, 0, 2, i), Past: number("past", 1) == 0}
			if o.AnyPort = number("any port", 1) == 0; !o.AnyPort {
				o.Ports = rapid.SliceOfN(rapid.SampledFrom([]PortRange{{6, 80, 80}, {6, 70, 90}, {17, 0, 65535}}), 0, 3).Draw(t, "ports")
			}
			p.Openings = append(p.Openings, o)
		}
		return p
	})
}

// oneOf is the old list, or that with the first of the new one in its place or the last
// left out, or the new one.
func oneOf[T any](t *rapid.T, old, next []T, id func(T) any) []T {
	switch step := rapid.IntRange(0, 9).Draw(t, "step"); {
	case step == 0:
		return next
	case step < 3 && len(old) > 0:
		return old[:len(old)-1]
	case step < 6 && len(next) > 0:
		rest := slices.DeleteFunc(slices.Clone(old), func(v T) bool { return id(v) == id(next[0]) })
		return append(rest, next[0])
	}
	return old
}

// TestObjectsAskForGroups: what an object needs may be a group of OpenFlow: it comes with the object and the flow that sends to it, in a
// bundle before that flow, changes alone, and goes with both, after the flow; all the same whether an input is compiled for itself or after another.
func TestObjectsAskForGroups(t *testing.T) {
	was := matters
	t.Cleanup(func() { matters = was })
	matters = append(slices.Clone(was), func(c *compiler) {
		for _, g := range c.in.Groups {
			if !netip.MustParsePrefix("239.0.0.0/8").Contains(g.Addr) {
				continue // the scene's
			}
			id, buckets := g.VNID<<8|uint32(g.Addr.As16()[15]), ""
			for _, p := range g.Ports {
				buckets += ",bucket=actions=" + output(p)
			}
			c.flows = append(c.flows, GroupEntry(id, "type=all"+buckets))
			c.add(Service, 100, vnidObject(g.VNID), match{}.toGroup(g), fmt.Sprintf("group:%d", id))
		}
	})
	var c Compiler
	var last []Flow
	group := func(last byte, ports ...uint32) Group {
		return Group{VNID: 5, Addr: netip.AddrFrom4([4]byte{239, 1, 1, last}), Ports: ports}
	}
	begin := scene(Metadata).Groups
	for _, step := range []struct {
		groups []Group
		want   string // what is done to groups, and to flows that send to them
	}{
		{[]Group{group(1, 11)}, "add 1281, add flow"},
		{[]Group{group(1, 11, 14)}, "modify 1281"},
		{[]Group{group(1, 11, 14), group(2, 14)}, "add 1282, add flow"},
		{[]Group{group(2, 14)}, "delete flow, delete 1281"},
		{nil, "delete flow, delete 1282"},
	} {
		in := scene(Metadata)
		in.Groups = append(slices.Clone(begin), step.groups...)
		if last == nil { // all else is there
			first := in
			first.Groups = begin
			if _, _, err := c.Compile(first); err != nil {
				t.Fatal(err)
			}
			last, _ = Compile(first)
		}
		got, changes, err := c.Compile(in)
		want, wantErr := Compile(in)
		if err != nil || wantErr != nil {
			t.Fatal(err, wantErr)
		}
		if d := cmp.Diff(want, got) + cmp.Diff(Diff(last, want), changes); d != "" {
			t.Errorf("%s: %s", step.want, d)
		}
		last = slices.Clone(want)
		if AnyGroup(got) != (len(step.groups) > 0) || len(changes.Add)+len(changes.Modify)+len(changes.Delete) > 8 {
			t.Errorf("%s: %d flows are changed", step.want, len(changes.Add)+len(changes.Modify)+len(changes.Delete))
		}
		var did []string
		for _, line := range changes.Lines() {
			verb, rest, _ := strings.Cut(line, " ")
			switch {
			case verb == "group":
				verb, rest, _ = strings.Cut(rest, " group_id=")
				if verb == "add_or_mod" {
					verb = "add"
					if slices.ContainsFunc(changes.Modify, Flow.isGroup) {
						verb = "modify"
					}
				}
				id, _, _ := strings.Cut(rest, ",")
				did = append(did, verb+" "+id)
			case strings.Contains(line, fmt.Sprintf("table=%d,", Service)):
				did = append(did, strings.TrimSuffix(verb, "_strict")+" flow")
			}
		}
		if got := strings.Join(did, ", "); got != step.want {
			t.Errorf("it does %q, want %q", got, step.want)
		}
	}
}

// TestCompilerIsCompile: what is compiled after something else is the same as if compiled
// by itself, and the changes lead to it from the last that was not refused.
func TestCompilerIsCompile(t *testing.T) {
	followed, joined := 0, 0
	crowds := []Crowd{{}, {Addr: netip.MustParseAddr("10.128.0.11")}, {Addr: netip.MustParseAddr("fd00:1::11")}, {Addr: netip.MustParseAddr("10.128.0.1"), Spared: true}, {Addr: netip.MustParseAddr("fd00:1::1"), Spared: true}}
	rapid.Check(t, func(t *rapid.T) {
		var c Compiler
		var last []Flow
		in := genInput().Draw(t, "first")
		for range rapid.IntRange(1, 16).Draw(t, "inputs") {
			if trial := (Compiler{in: c.in, index: c.index, flows: c.flows, more: maps.Clone(c.more)}); c.more != nil && in.validate() == nil {
				next := objects{Input: in}
				next.policed, next.members = in.Policy.objects()
				if changes, ok := trial.follow(next); ok && in.Policy.validate() == nil {
					followed++
					if slices.ContainsFunc(changes.Modify, func(f Flow) bool { return isConjunction(f.Actions) }) {
						joined++
					}
				}
			}
			got, changes, err := c.Compile(in)
			want, wantErr := Compile(in)
			if fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("error %v, want %v", err, wantErr)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("flows: %s", d)
			}
			if err == nil { // also after inputs that were refused
				for _, f := range want {
					// The switch says each once, and what it spells in another way would be set again and again.
					terms := strings.Split(f.Match, ",")
					if slices.Sort(terms); len(slices.Compact(slices.Clone(terms))) != len(terms) {
						t.Fatalf("a term is there twice: %s", f.Match)
					}
				}
				if d := cmp.Diff(Diff(last, want), changes); d != "" {
					t.Fatalf("changes: %s", d)
				}
				last = want
				in.Generation++
				_, more, err := c.Compile(in)
				if err != nil {
					t.Fatal(err)
				}
				before := last
				if last, err = Compile(in); err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(last, apply(before, changes.Then(more))); d != "" {
					t.Fatalf("changes, and then another generation: %s", d)
				}
			}
			next := genInput().Draw(t, "next")
			if rapid.IntRange(0, 9).Draw(t, "rules alone") < 6 { // as when a policy is applied to what has long been there
				drawn := next.Policy.Rules
				next = in
				next.Policy.Rules = oneOf(t, in.Policy.Rules, drawn, func(r PolicyRule) any { return r.ID })
				in = next
				continue
			}
			if rapid.IntRange(0, 9).Draw(t, "mode") > 0 {
				next.Tunnel = in.Tunnel
			}
			if rapid.IntRange(0, 3).Draw(t, "another generation") > 0 {
				next.Generation, next.Secret = in.Generation, in.Secret
			}
			if rapid.IntRange(0, 9).Draw(t, "gateway") > 0 {
				next.GatewayPort = in.GatewayPort
			}
			if rapid.IntRange(0, 9).Draw(t, "exits") > 0 {
				next.Exits = in.Exits
			}
			next.VTEPs = oneOf(t, in.VTEPs, next.VTEPs, func(v VTEP) any { return v.Addr })
			next.Subnets = oneOf(t, in.Subnets, next.Subnets, func(s Subnet) any { return s.Prefix })
			next.Routes = oneOf(t, in.Routes, next.Routes, func(r Route) any { return r.Prefix })
			next.Ports = oneOf(t, in.Ports, next.Ports, func(p Port) any { return p.Endpoint })
			next.Unheard = oneOf(t, in.Unheard, next.Unheard, func(u Unheard) any { return u.Addr })
			next.Neighbours = oneOf(t, in.Neighbours, next.Neighbours, func(n Neighbour) any { return n.Addr })
			if drawn := next.Policy; rapid.IntRange(0, 9).Draw(t, "policy") > 0 {
				next.Policy = Policy{
					Guards:   oneOf(t, in.Policy.Guards, drawn.Guards, func(g Guard) any { return g.Endpoint }),
					Classes:  oneOf(t, in.Policy.Classes, drawn.Classes, func(c Class) any { return c.ID }),
					Rules:    oneOf(t, in.Policy.Rules, drawn.Rules, func(r PolicyRule) any { return r.ID }),
					Openings: oneOf(t, in.Policy.Openings, drawn.Openings, func(o Opening) any { return o.key() }),
					Crowds:   rapid.SliceOfNDistinct(rapid.SampledFrom(crowds), 0, len(crowds), rapid.ID[Crowd]).Draw(t, "crowds"),
				}
			}
			in = next
		}
	})
	t.Logf("%d inputs were compiled by what differs, of %d the conjunctions of a flow", followed, joined)
	if !testing.Short() && (followed == 0 || joined == 0) { // of a fifth of the inputs there may be none
		t.Errorf("%d inputs were compiled by what differs, of %d the conjunctions of a flow", followed, joined)
	}
}

// TestEqualSeesEveryField: who adds a field to what is compared by hand comes by here.
func TestEqualSeesEveryField(t *testing.T) {
	a := VTEP{Addr: netip.MustParseAddr("192.0.2.2"), Index: 2, Host: addrs("240.1.0.2")}
	for i, b := range []VTEP{{Addr: netip.MustParseAddr("192.0.2.3"), Index: 2, Host: a.Host}, {Addr: a.Addr, Index: 3, Host: a.Host}, {Addr: a.Addr, Index: 2}, {Addr: a.Addr, Index: 2, Host: a.Host, Secure: true}, {Addr: a.Addr, Index: 2, Host: a.Host, Beside: true}} {
		if a.equal(b) || !b.equal(b) {
			t.Errorf("%d: %v and %v", i, a, b)
		}
	}
	p := scene(Metadata).Ports[0]
	for i, change := range []func(*Port){
		func(p *Port) { p.OFPort++ }, func(p *Port) { p.MAC = nil }, func(p *Port) { p.Addrs = nil }, func(p *Port) { p.LinkLocal = nil },
		func(p *Port) { p.VNID++ }, func(p *Port) { p.Internal = !p.Internal }, func(p *Port) { p.Endpoint += "x" }, func(p *Port) { p.Plain = !p.Plain }, func(p *Port) { p.Realm++ }, func(p *Port) { p.Encrypted = !p.Encrypted },
		func(p *Port) { p.Multicast = !p.Multicast }, func(p *Port) { p.Rejects = !p.Rejects }, func(p *Port) { p.Guarded = !p.Guarded }, func(p *Port) { p.Bare = !p.Bare },
	} {
		o := p
		if change(&o); p.equal(o) || !p.equal(p) {
			t.Errorf("%d: %v and %v", i, p, o)
		}
	}
	if v, p := reflect.TypeFor[VTEP]().NumField(), reflect.TypeFor[Port]().NumField(); v != 5 || p != 14 {
		t.Errorf("a VTEP has %d fields and a Port %d, and 5 and 14 of them are compared", v, p)
	}
	eachField(t, scene(Metadata).Groups[0], Group.equal)
	eachField(t, Unheard{Endpoint: "e", Addr: netip.MustParseAddr("10.128.0.11"), Ranges: []netip.Prefix{netip.MustParsePrefix("10.128.1.0/24")}}, Unheard.equal)
	eachField(t, policyScene().Guards[0], Guard.equal)
	eachField(t, policyScene().Rules[0], PolicyRule.equal, "Label", "Also")
	eachField(t, Opening{Rule: 1, Priority: 1, From: netip.MustParseAddr("10.128.0.11"), To: netip.MustParseAddr("192.0.2.1"), Ports: []PortRange{{6, 80, 80}}}, Opening.equal)
}

// eachField fails if equal does not see a change of a field, but of some.
func eachField[T any](t *testing.T, v T, equal func(T, T) bool, unseen ...string) {
	t.Helper()
	if !equal(v, v) {
		t.Errorf("%+v is not itself", v)
	}
	for i := range reflect.TypeFor[T]().NumField() {
		other, name := v, reflect.TypeFor[T]().Field(i).Name
		switch f := reflect.ValueOf(&other).Elem().Field(i); f.Kind() {
		case reflect.Bool:
			f.SetBool(!f.Bool())
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), f.Len()+1, f.Len()+1))
		case reflect.String:
			f.SetString(f.String() + "x")
		case reflect.Int:
			f.SetInt(f.Int() + 1)
		case reflect.Struct: // an address
			f.Set(reflect.ValueOf(f.Interface().(netip.Addr).Next()))
		default:
			f.SetUint(f.Uint() + 1)
		}
		if equal(v, other) != slices.Contains(unseen, name) {
			t.Errorf("of another %s: equal says %v", name, equal(v, other))
		}
	}
}

// TestOneObjectIsOneObject: of an input like another one only what differs is compiled.
func TestOneObjectIsOneObject(t *testing.T) {
	a := scene(Metadata)
	b := scene(Metadata)
	b.Routes[2].VTEP = a.VTEPs[0].Addr
	b.VTEPs[1].Host = addrs("240.1.0.3")
	gone, come, ok := differing(objects{Input: a}, objects{Input: b})
	if !ok || len(gone.Routes) != 1 || len(come.Routes) != 1 || len(gone.VTEPs) != 1 || len(come.VTEPs) != 1 || len(gone.Subnets)+len(gone.Ports)+len(gone.Neighbours) != 0 {
		t.Errorf("%v %+v %+v", ok, gone, come)
	}
	b.VTEPs = slices.Clone(b.VTEPs)
	b.VTEPs[1].Index = 99 // three ranges and a neighbour are behind it
	if gone, come, ok = differing(objects{Input: a}, objects{Input: b}); !ok || len(gone.Routes) != 3 || len(come.Routes) != 3 || len(gone.Neighbours) != 1 {
		t.Errorf("%v %+v %+v", ok, gone, come)
	}
}

// TestNothingIsForgotten: whatever of an input is another, the objects that it is about are compiled again, or all are.
func TestNothingIsForgotten(t *testing.T) {
	whole := objects{Input: scene(Metadata)}
	whole.Policy = policyScene()
	n := 0
	var change func(name string, f func(*objects) reflect.Value)
	change = func(name string, f func(*objects) reflect.Value) {
		other := whole
		switch v := f(&other); v.Kind() {
		case reflect.Struct:
			if v.Type() != reflect.TypeFor[netip.Addr]() {
				for i := range v.NumField() {
					change(name+"."+v.Type().Field(i).Name, func(o *objects) reflect.Value { return f(o).Field(i) })
				}
				return
			}
			v.Set(reflect.ValueOf(netip.MustParseAddr("192.0.2.99")))
		case reflect.Slice:
			if v.Type() == reflect.TypeFor[[]Class]() {
				return // classes are their members
			}
			if !v.CanSet() { // members
				other.members = append(slices.Clone(other.members), member{class: 4711})
				break
			}
			v.Set(reflect.AppendSlice(reflect.MakeSlice(v.Type(), 1, 1), v))
		case reflect.Bool:
			if !v.CanSet() { // policed
				other.policed = !other.policed
				break
			}
			v.SetBool(!v.Bool())
		default:
			v.SetUint(v.Uint() + 1)
		}
		n++
		gone, come, ok := differing(whole, other)
		if ok && gone.empty() && come.empty() && gone.Generation == come.Generation {
			t.Errorf("of another %s nothing is compiled", name)
		}
	}
	change("objects", func(o *objects) reflect.Value { return reflect.ValueOf(o).Elem() })
	if n < 25 {
		t.Errorf("only %d parts of an input are tried", n)
	}
}
