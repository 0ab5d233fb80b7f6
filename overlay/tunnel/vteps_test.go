package tunnel

import (
	"maps"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawVTEPs has few addresses and indexes, so that they collide.
func drawVTEPs(t *rapid.T) map[uint32]netip.Addr {
	addr := rapid.SampledFrom([]netip.Addr{
		netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"),
		netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2"),
	})
	return rapid.MapOfN(rapid.Uint32Range(0, 5), addr, 0, 6).Draw(t, "vteps")
}

// From any state to any other, through the kernel's maps: what is wanted is there and
// nothing else, and an index that packets from an address carry stays if it may.
func TestSetVTEPs(t *testing.T) {
	tun := New(Config{})
	defer tun.Close()
	ok(t, tun.load())
	rapid.Check(t, func(t *rapid.T) {
		var before map[vtep]uint32
		for range 2 {
			want := drawVTEPs(t)
			if err := tun.SetVTEPs(ctx, want); err != nil {
				t.Fatal(err)
			}
			got, err := tun.VTEPs(ctx)
			if err != nil || !maps.Equal(got, want) {
				t.Fatalf("set %v, got %v, %v", want, got, err)
			}
			indexes, err := read[vtep, uint32](tun.objs.GvVtepIndex)
			if err != nil {
				t.Fatal(err)
			}
			checkIndexes(t, want, before, indexes)
			before = indexes
		}
	})
}

func checkIndexes(t *rapid.T, want map[uint32]netip.Addr, before, after map[vtep]uint32) {
	for v, i := range after {
		if want[i] != v.addr() {
			t.Fatalf("packets from %v get index %d, which is %v", v.addr(), i, want[i])
		}
		if old, was := before[v]; was && want[old] == v.addr() && old != i {
			t.Fatalf("packets from %v had index %d, which still holds, and get %d", v.addr(), old, i)
		}
	}
	for i, a := range want {
		if _, there := after[a.As16()]; !there {
			t.Fatalf("packets from %v (%d) get no index", a, i)
		}
	}
}

func TestBadVTEPs(t *testing.T) {
	tun := New(Config{})
	defer tun.Close()
	good := map[uint32]netip.Addr{1: netip.MustParseAddr("10.0.0.1")}
	ok(t, tun.SetVTEPs(ctx, good))
	many := make(map[uint32]netip.Addr)
	for i := range uint32(maxVTEPs + 1) {
		many[i] = netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
	}
	for want, bad := range map[string]map[uint32]netip.Addr{
		"no host's":   {2: netip.MustParseAddr("224.0.0.1")},
		"VTEP 3":      {3: {}},
		"holds 16384": many,
	} {
		if err := tun.SetVTEPs(ctx, bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q: %v", want, err)
		}
	}
	if got, _ := tun.VTEPs(ctx); !maps.Equal(got, good) {
		t.Errorf("after bad ones it has %v", got)
	}
}
