package ring

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The spaces that the tests cut up: small, so that claims overlap often, and at
// the edges of the number spaces, where arithmetic goes wrong first.
var spaces = []string{
	"10.0.0.0/27", "255.255.255.224/27", "0.0.0.0/27",
	"fd00::/123", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffe0/123", "::/123",
}

var owners = []Owner{"00000000000000aa", "00000000000000bb", "00000000000000cc"}

func drawSpace(t *rapid.T) netip.Prefix {
	return netip.MustParsePrefix(rapid.SampledFrom(spaces).Draw(t, "space"))
}

func drawBlock(t *rapid.T, space netip.Prefix) netip.Prefix {
	bits := rapid.IntRange(space.Bits(), space.Addr().BitLen()).Draw(t, "bits")
	return netip.PrefixFrom(drawIn(t, space), bits).Masked()
}

func drawIn(t *rapid.T, space netip.Prefix) netip.Addr {
	n := rapid.Uint64Range(0, size(space).lo-1).Draw(t, "number")
	return numberOf(space.Addr()).add(number{0, n}).addr(space.Addr().BitLen())
}

// drawClaims returns claims of any kind, versions in conflict included.
func drawClaims(t *rapid.T, space netip.Prefix, label string) []Claim {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Claim {
		owner := rapid.SampledFrom(owners)
		return Claim{
			Block:   drawBlock(t, space),
			Version: Version{rapid.Uint64Range(1, 6).Draw(t, "counter"), owner.Draw(t, "by")},
			Owner:   owner.Draw(t, "owner"),
		}
	}), 0, 20).Draw(t, label)
}

func ringOf(claims ...Claim) *Ring {
	var r Ring
	r.Merge(claims...)
	return &r
}

func claimsOf(r *Ring) []Claim { return slices.Collect(r.Claims()) }

func numbers(p netip.Prefix) (all []netip.Addr) {
	for a := p.Addr(); p.Contains(a); a = a.Next() {
		all = append(all, a)
	}
	return all
}

func TestDominationIsAStrictPartialOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		claims := drawClaims(t, drawSpace(t), "claims")
		for _, a := range claims {
			for _, b := range claims {
				if a.Dominates(b) && b.Dominates(a) {
					t.Fatalf("%v and %v dominate each other", a, b)
				}
				for _, c := range claims {
					if a.Dominates(b) && b.Dominates(c) && !a.Dominates(c) {
						t.Fatalf("%v over %v over %v, but not the first over the last", a, b, c)
					}
				}
			}
		}
	})
}

func TestMergeKeepsWhatNothingDominates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		space := drawSpace(t)
		first, then := drawClaims(t, space, "first"), drawClaims(t, space, "then")
		r := ringOf(first...)
		before := claimsOf(r)
		accepted, dropped := r.Merge(then...)
		after := claimsOf(r)
		if want := undominated(append(before, then...)); !sameSet(after, want) {
			t.Fatalf("ring has %v, want %v", after, want)
		}
		if !slices.IsSortedFunc(after, func(a, b Claim) int { return compareBlocks(a.Block, b.Block) }) {
			t.Fatalf("claims out of order: %v", after)
		}
		if want := without(after, before); !sameSet(accepted, want) {
			t.Fatalf("accepted %v, want %v", accepted, want)
		}
		if want := without(before, after); !sameSet(dropped, want) {
			t.Fatalf("dropped %v, want %v", dropped, want)
		}
	})
}

func TestMergeLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		space := drawSpace(t)
		a, b, c := drawClaims(t, space, "a"), drawClaims(t, space, "b"), drawClaims(t, space, "c")
		want := claimsOf(ringOf(slices.Concat(a, b, c)...))
		bc := ringOf(b...)
		bc.Merge(c...)
		for name, r := range map[string]*Ring{
			"commutative": ringOf(slices.Concat(c, b, a)...),
			"associative": ringOf(append(claimsOf(bc), a...)...),
			"idempotent":  ringOf(slices.Concat(a, b, a, c, b, c, want)...),
			"shuffled":    ringOf(rapid.Permutation(slices.Concat(a, b, c)).Draw(t, "shuffled")...),
		} {
			if got := claimsOf(r); !slices.Equal(got, want) {
				t.Fatalf("%s: %v, want %v", name, got, want)
			}
		}
	})
}

func TestLookUpsAgreeWithTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		space := drawSpace(t)
		r := ringOf(drawClaims(t, space, "claims")...)
		owner := map[netip.Addr]Claim{}
		for _, a := range numbers(space) {
			want, found := modelOwner(r, a)
			if got, ok := r.Owner(a); ok != found || got != want {
				t.Fatalf("Owner(%s) = %v, %v, want %v, %v", a, got, ok, want, found)
			}
			if found {
				owner[a] = want
			}
		}
		within := drawBlock(t, space)
		var deciding []Claim
		for c := range r.Claims() {
			if c.Block.Overlaps(within) {
				deciding = append(deciding, c)
			}
		}
		if got := slices.Collect(r.Within(within)); !slices.Equal(got, deciding) {
			t.Fatalf("Within(%s) = %v, want %v", within, got, deciding)
		}
		for _, o := range owners {
			var owned []netip.Addr
			for _, a := range numbers(within) {
				if owner[a].Owner == o {
					owned = append(owned, a)
				}
			}
			blocks := r.Owned(o, within)
			checkBlocks(t, blocks, owned)
			if n := r.Counts(within)[o]; n != uint64(len(owned)) {
				t.Fatalf("Counts(%s)[%s] = %d, want %d", within, o, n, len(owned))
			}
			if all := uint64(len(owned)) == size(within).lo; r.OwnsAll(o, within) != all {
				t.Fatalf("OwnsAll(%s, %s) = %v", o, within, !all)
			}
		}
	})
}

func TestCloneIsIndependent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		space := drawSpace(t)
		r := ringOf(drawClaims(t, space, "claims")...)
		before := claimsOf(r)
		c := r.Clone()
		c.Merge(drawClaims(t, space, "to the clone")...)
		inClone := claimsOf(c)
		if !slices.Equal(claimsOf(r), before) {
			t.Fatal("merging into the clone changed the original")
		}
		r.Merge(drawClaims(t, space, "to the original")...)
		if !slices.Equal(claimsOf(c), inClone) {
			t.Fatal("merging into the original changed the clone")
		}
	})
}

func TestWholeSpaces(t *testing.T) {
	a, b := owners[0], owners[1]
	all4, all6 := netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")
	half := netip.MustParsePrefix("8000::/1")
	r := ringOf(Claim{all4, Version{1, a}, a}, Claim{all6, Version{2, a}, a}, Claim{half, Version{3, a}, b})
	for _, tt := range []struct {
		got  any
		want string
	}{
		{r.Owned(a, all4), "[0.0.0.0/0]"},
		{r.Owned(a, all6), "[::/1]"},
		{r.Owned(b, all6), "[8000::/1]"},
		{r.Owned(b, all4), "[]"},
		{r.Counts(all4), "map[00000000000000aa:4294967296]"},
		{r.Counts(all6), "map[00000000000000aa:18446744073709551615 00000000000000bb:18446744073709551615]"},
		{r.OwnsAll(a, VNIDs), "true"},
		{r.OwnsAll(b, all6), "false"},
		{r.OwnsAll(a, netip.MustParsePrefix("10.0.0.1/8")), "false"},
		{r.Owned(a, netip.Prefix{}), "[]"},
		{Count([]netip.Prefix{all6, all6}), "18446744073709551615"},
	} {
		if got := fmt.Sprint(tt.got); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

func TestInvalidClaimsAreIgnored(t *testing.T) {
	good := Claim{netip.MustParsePrefix("10.0.0.0/8"), Version{1, owners[0]}, owners[0]}
	with := func(change func(*Claim)) Claim {
		c := good
		change(&c)
		return c
	}
	for name, c := range map[string]Claim{
		"zero":         {},
		"not masked":   with(func(c *Claim) { c.Block = netip.MustParsePrefix("10.0.0.1/8") }),
		"IPv4-mapped":  with(func(c *Claim) { c.Block = netip.MustParsePrefix("::ffff:10.0.0.0/104") }),
		"no version":   with(func(c *Claim) { c.Version.Counter = 0 }),
		"short owner":  with(func(c *Claim) { c.Owner = "aa" }),
		"upper case":   with(func(c *Claim) { c.Owner = "00000000000000AA" }),
		"empty writer": with(func(c *Claim) { c.Version.By = "" }),
	} {
		if c.Validate() == nil {
			t.Errorf("%s: valid", name)
		}
		if accepted, dropped := ringOf(good).Merge(c); len(accepted)+len(dropped) > 0 {
			t.Errorf("%s: accepted %v, dropped %v", name, accepted, dropped)
		}
	}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}

func TestVNIDs(t *testing.T) {
	for _, v := range []uint32{0, 1, 255, 256, 1<<24 - 1} {
		a := VNIDAddr(v)
		if back, ok := AddrVNID(a); !ok || back != v || !VNIDs.Contains(a) {
			t.Errorf("VNID %d is %s, which is %d, %v", v, a, back, ok)
		}
	}
	if a := VNIDAddr(1 << 24); a.IsValid() {
		t.Errorf("VNID 2^24 is %s", a)
	}
	for _, a := range []string{"1.0.0.0", "::", "::ffff:0.0.0.1"} {
		if v, ok := AddrVNID(netip.MustParseAddr(a)); ok {
			t.Errorf("%s is VNID %d", a, v)
		}
	}
}

func undominated(claims []Claim) (kept []Claim) {
	for i, c := range claims {
		dominated := slices.ContainsFunc(claims, func(d Claim) bool { return d.Dominates(c) })
		if !dominated && !slices.Contains(claims[:i], c) {
			kept = append(kept, c)
		}
	}
	return kept
}

func modelOwner(r *Ring, a netip.Addr) (best Claim, found bool) {
	for c := range r.Claims() {
		if c.Block.Contains(a) && (!found || c.Block.Bits() > best.Block.Bits()) {
			best, found = c, true
		}
	}
	return best, found
}

func without(claims, minus []Claim) []Claim {
	return slices.DeleteFunc(slices.Clone(claims), func(c Claim) bool { return slices.Contains(minus, c) })
}

func sameSet(a, b []Claim) bool {
	return len(a) == len(b) && len(without(a, b)) == 0 && len(without(b, a)) == 0
}

// checkBlocks fails unless blocks are the fewest aligned blocks, in order, that
// have exactly the numbers given in order.
func checkBlocks(t *rapid.T, blocks []netip.Prefix, want []netip.Addr) {
	t.Helper()
	var got []netip.Addr
	for i, p := range blocks {
		got = append(got, numbers(p)...)
		if i > 0 && blocks[i-1].Bits() == p.Bits() {
			if parent := netip.PrefixFrom(p.Addr(), p.Bits()-1).Masked(); parent.Contains(blocks[i-1].Addr()) {
				t.Fatalf("%s and %s are not joined", blocks[i-1], p)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("blocks %v, want numbers %v", blocks, want)
	}
}
