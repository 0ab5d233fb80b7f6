package pipeline

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
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
		for _, i := range few("VTEPs") {
			v := VTEP{Addr: vtep(i), Index: uint32(1 + 10*i + number("index", 1))}
			if number("known", 2) > 0 {
				v.Host = []netip.Addr{four(240, 1, 0, 2+i)}
			}
			in.VTEPs = append(in.VTEPs, v)
		}
		for _, i := range few("subnets") {
			s := Subnet{Prefix: netip.PrefixFrom(four(10, 128+i/2, 0, 0), 16+i%2), VNID: uint32(number("vnid", 2))}
			if number("has a gateway", 2) > 0 {
				s.Gateway = four(10, 128+i/2, 0, 1)
			}
			in.Subnets = append(in.Subnets, s)
		}
		for _, i := range few("routes") {
			r := Route{Prefix: netip.PrefixFrom(four(10, 128+i, 0, 0), 24), VNID: uint32(number("vnid", 2))}
			if behind := number("behind", 5); behind < 5 {
				r.VTEP = vtep(behind)
			}
			in.Routes = append(in.Routes, r)
		}
		for _, i := range few("ports") {
			p := Port{OFPort: uint32(10 + i), MAC: net.HardwareAddr{2, 0, 0, 0, 0, byte(i)}, VNID: uint32(number("vnid", 2)), Endpoint: fmt.Sprint("endpoint", i)}
			p.Addrs = []netip.Addr{four(10, 128, 0, 10+i+number("same", 6)/6)}
			if number("has one", 2) == 0 {
				p.LinkLocal = []netip.Addr{four(169, 254, 0, i)}
			}
			p.Internal = number("internal", 3) == 0
			in.Ports = append(in.Ports, p)
		}
		for _, i := range few("neighbours") {
			in.Neighbours = append(in.Neighbours, Neighbour{Addr: four(169, 254, 1, i), VNID: uint32(number("vnid", 2)), VTEP: vtep(i)})
		}
		return in
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

// TestCompilerIsCompile: what is compiled after something else is the same as if compiled
// by itself, and the changes lead from the one to the other.
func TestCompilerIsCompile(t *testing.T) {
	followed := 0
	rapid.Check(t, func(t *rapid.T) {
		var c Compiler
		var last []Flow
		in := genInput().Draw(t, "first")
		for range rapid.IntRange(1, 8).Draw(t, "inputs") {
			if trial := (Compiler{in: c.in, index: c.index, flows: c.flows, more: maps.Clone(c.more)}); c.more != nil && in.validate() == nil {
				if _, ok := trial.follow(in); ok {
					followed++
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
			if d := cmp.Diff(Diff(last, want), changes); err == nil && last != nil && d != "" {
				t.Fatalf("changes: %s", d)
			}
			last = want
			next := genInput().Draw(t, "next")
			if rapid.IntRange(0, 9).Draw(t, "mode") > 0 {
				next.Tunnel = in.Tunnel
			}
			if rapid.IntRange(0, 9).Draw(t, "gateway") > 0 {
				next.GatewayPort = in.GatewayPort
			}
			next.VTEPs = oneOf(t, in.VTEPs, next.VTEPs, func(v VTEP) any { return v.Addr })
			next.Subnets = oneOf(t, in.Subnets, next.Subnets, func(s Subnet) any { return s.Prefix })
			next.Routes = oneOf(t, in.Routes, next.Routes, func(r Route) any { return r.Prefix })
			next.Ports = oneOf(t, in.Ports, next.Ports, func(p Port) any { return p.Endpoint })
			next.Neighbours = oneOf(t, in.Neighbours, next.Neighbours, func(n Neighbour) any { return n.Addr })
			in = next
		}
	})
	if followed == 0 {
		t.Error("all was compiled anew each time")
	}
}

// TestEqualSeesEveryField: who adds a field to what is compared by hand comes by here.
func TestEqualSeesEveryField(t *testing.T) {
	a := VTEP{Addr: netip.MustParseAddr("192.0.2.2"), Index: 2, Host: addrs("240.1.0.2")}
	for i, b := range []VTEP{{netip.MustParseAddr("192.0.2.3"), 2, a.Host}, {a.Addr, 3, a.Host}, {a.Addr, 2, nil}} {
		if a.equal(b) || !b.equal(b) {
			t.Errorf("%d: %v and %v", i, a, b)
		}
	}
	p := scene(Metadata).Ports[0]
	for i, change := range []func(*Port){
		func(p *Port) { p.OFPort++ }, func(p *Port) { p.MAC = nil }, func(p *Port) { p.Addrs = nil }, func(p *Port) { p.LinkLocal = nil },
		func(p *Port) { p.VNID++ }, func(p *Port) { p.Internal = !p.Internal }, func(p *Port) { p.Endpoint += "x" }, func(p *Port) { p.Plain = !p.Plain },
	} {
		o := p
		if change(&o); p.equal(o) || !p.equal(p) {
			t.Errorf("%d: %v and %v", i, p, o)
		}
	}
	if v, p := reflect.TypeFor[VTEP]().NumField(), reflect.TypeFor[Port]().NumField(); v != 3 || p != 8 {
		t.Errorf("a VTEP has %d fields and a Port %d, and 3 and 8 of them are compared", v, p)
	}
}

// TestOneObjectIsOneObject: of an input like another one only what differs is compiled.
func TestOneObjectIsOneObject(t *testing.T) {
	a := scene(Metadata)
	b := scene(Metadata)
	b.Routes[2].VTEP = a.VTEPs[0].Addr
	b.VTEPs[1].Host = addrs("240.1.0.3")
	gone, come, ok := differing(a, b)
	if !ok || len(gone.Routes) != 1 || len(come.Routes) != 1 || len(gone.VTEPs) != 1 || len(come.VTEPs) != 1 || len(gone.Subnets)+len(gone.Ports)+len(gone.Neighbours) != 0 {
		t.Errorf("%v %+v %+v", ok, gone, come)
	}
	b.VTEPs = slices.Clone(b.VTEPs)
	b.VTEPs[1].Index = 99 // three ranges and a neighbour are behind it
	if gone, come, ok = differing(a, b); !ok || len(gone.Routes) != 3 || len(come.Routes) != 3 || len(gone.Neighbours) != 1 {
		t.Errorf("%v %+v %+v", ok, gone, come)
	}
}
