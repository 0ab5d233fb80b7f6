package ring

import (
	"math/big"
	"math/bits"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func drawBlocks(t *rapid.T, space netip.Prefix, label string) (blocks []netip.Prefix) {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) netip.Prefix { return drawBlock(t, space) }), 0, 8).Draw(t, label)
}

func TestSubtractAndUnion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		space := drawSpace(t)
		blocks, used := drawBlocks(t, space, "blocks"), drawBlocks(t, space, "used")
		var union, left []netip.Addr
		for _, a := range numbers(space) {
			around := func(p netip.Prefix) bool { return p.Contains(a) }
			if slices.ContainsFunc(blocks, around) {
				union = append(union, a)
				if !slices.ContainsFunc(used, around) {
					left = append(left, a)
				}
			}
		}
		other := netip.MustParsePrefix("192.0.2.0/24") // neither adds nor takes
		checkBlocks(t, Union(append(blocks, netip.Prefix{})), union)
		checkBlocks(t, Subtract(blocks, append(used, other)), left)
		if n := Count(Union(blocks)); n != uint64(len(union)) {
			t.Fatalf("Count = %d, want %d", n, len(union))
		}
	})
}

func TestSubtractKeepsTheFamiliesApart(t *testing.T) {
	p := netip.MustParsePrefix
	got := Subtract([]netip.Prefix{p("::/0"), p("0.0.0.0/0")}, []netip.Prefix{p("128.0.0.0/1"), p("::/1")})
	if want := []netip.Prefix{p("0.0.0.0/1"), p("8000::/1")}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := Subtract([]netip.Prefix{p("::/0")}, nil); !slices.Equal(got, []netip.Prefix{p("::/0")}) {
		t.Errorf("::/0 without nothing = %v", got)
	}
	if got := Subtract([]netip.Prefix{p("::/0")}, []netip.Prefix{p("::/128")}); len(got) != 128 || got[127] != p("8000::/1") {
		t.Errorf("::/0 without :: = %v", got)
	}
}

func TestDonation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		space := drawSpace(t)
		free := Subtract(drawBlocks(t, space, "free"), drawBlocks(t, space, "used"))
		unit := rapid.IntRange(space.Bits(), space.Addr().BitLen()).Draw(t, "unit")
		usable := slices.DeleteFunc(slices.Clone(free), func(p netip.Prefix) bool { return p.Bits() > unit })
		units := Count(usable) >> (space.Addr().BitLen() - unit)
		given, ok := Donation(free, unit)
		if ok != (units > 1) {
			t.Fatalf("Donation(%v, %d) = %s, %v with %d units free", free, unit, given, ok, units)
		}
		if !ok {
			return
		}
		if len(Subtract([]netip.Prefix{given}, usable)) > 0 || given.Bits() > unit {
			t.Fatalf("%s is not in %v, or below the unit %d", given, usable, unit)
		}
		// Half, rounded up to a power of two, or the largest there is below that.
		half := uint64(1) << bits.Len64(units/2-1)
		got := Count([]netip.Prefix{given}) >> (space.Addr().BitLen() - unit)
		if got > half || got == units {
			t.Fatalf("%s has %d units, more than half of %d", given, got, units)
		}
		for _, p := range usable {
			n := Count([]netip.Prefix{p}) >> (space.Addr().BitLen() - unit)
			if min(n, half) > got || min(n, half) == got && given.Addr().Less(p.Addr()) && !p.Overlaps(given) {
				t.Fatalf("gave %s though %s is free, half is %d", given, p, half)
			}
		}
	})
}

func TestDonationExamples(t *testing.T) {
	tests := []struct {
		free string
		used []string
		unit int
		want string // "": none
	}{
		{"10.0.0.0/22", nil, 32, "10.0.2.0/23"},
		{"10.0.0.0/22", []string{"10.0.0.0/32", "10.0.0.1/32"}, 32, "10.0.2.0/23"},
		{"10.0.0.0/22", []string{"10.0.2.0/23"}, 32, "10.0.1.0/24"},
		{"10.0.0.0/22", []string{"10.0.3.255/32"}, 32, "10.0.0.0/23"},
		{"10.0.0.0/31", nil, 32, "10.0.0.1/32"},
		{"10.0.0.0/32", nil, 32, ""},
		{"10.128.0.0/14", nil, 22, "10.130.0.0/15"},
		{"10.128.0.0/22", nil, 22, ""},
		{"0.0.0.0/8", []string{"0.0.0.0/32"}, 32, "0.128.0.0/9"},
		{"::/0", nil, 128, "8000::/1"},
		{"fd00::/48", nil, 64, "fd00:0:0:8000::/49"},
	}
	for _, tt := range tests {
		var used []netip.Prefix
		for _, u := range tt.used {
			used = append(used, netip.MustParsePrefix(u))
		}
		got, ok := Donation(Subtract([]netip.Prefix{netip.MustParsePrefix(tt.free)}, used), tt.unit)
		if ok != (tt.want != "") || ok && got.String() != tt.want {
			t.Errorf("%s without %v: gave %s, %v, want %q", tt.free, tt.used, got, ok, tt.want)
		}
	}
}

func TestFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		space := drawSpace(t)
		free := Union(drawBlocks(t, space, "free"))
		bits := rapid.IntRange(space.Bits(), space.Addr().BitLen()).Draw(t, "bits")
		got, ok := Fit(free, bits)
		var smallest int
		for _, p := range free {
			if p.Bits() <= bits {
				smallest = max(smallest, p.Bits())
			}
		}
		if ok != (smallest > 0) {
			t.Fatalf("Fit(%v, %d) = %s, %v", free, bits, got, ok)
		}
		if !ok {
			return
		}
		in := slices.IndexFunc(free, func(p netip.Prefix) bool { return contains(p, got) })
		if got.Bits() != bits || got != got.Masked() || in < 0 || free[in].Bits() != smallest {
			t.Fatalf("Fit(%v, %d) = %s", free, bits, got)
		}
	})
}

func TestNumbersAgreeWithBig(t *testing.T) {
	toBig := func(n number) *big.Int {
		b := new(big.Int).SetUint64(n.hi)
		return b.Lsh(b, 64).Or(b, new(big.Int).SetUint64(n.lo))
	}
	mod := new(big.Int).Lsh(big.NewInt(1), 128)
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{0, 1, 1 << 63, 1<<64 - 1}))
		n, m := number{word.Draw(t, "nhi"), word.Draw(t, "nlo")}, number{word.Draw(t, "mhi"), word.Draw(t, "mlo")}
		s := rapid.IntRange(0, 128).Draw(t, "shift")
		a, b := toBig(n), toBig(m)
		sum := new(big.Int).Add(a, b)
		plus := sum
		if sum.Cmp(mod) >= 0 {
			plus = toBig(maxNumber)
		}
		diff := new(big.Int).Sub(a, b)
		shl := new(big.Int).Lsh(a, uint(s))
		for name, pair := range map[string][2]*big.Int{
			"add":  {toBig(n.add(m)), new(big.Int).Mod(sum, mod)},
			"plus": {toBig(n.plus(m)), plus},
			"sub":  {toBig(n.sub(m)), new(big.Int).Mod(diff, mod)},
			"shl":  {toBig(n.shl(s)), new(big.Int).Mod(shl, mod)},
			"shr":  {toBig(n.shr(s)), new(big.Int).Rsh(a, uint(s))},
			"addr": {toBig(numberOf(n.addr(128))), a},
		} {
			if pair[0].Cmp(pair[1]) != 0 {
				t.Fatalf("%s: %v, want %v", name, pair[0], pair[1])
			}
		}
		if n.less(m) != (a.Cmp(b) < 0) || n.leadingZeros() != 128-a.BitLen() {
			t.Fatalf("less %v, leadingZeros %d", n.less(m), n.leadingZeros())
		}
	})
}
