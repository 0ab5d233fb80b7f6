package ring

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
)

// ringOfHosts is 10.128.0.0/14 as 1,000 hosts use it: 256 networks of /22, of
// which each has a hundred hosts with eight addresses.
func ringOfHosts() *Ring {
	r, counter := &Ring{}, uint64(0)
	claim := func(p netip.Prefix, host int) {
		counter++
		o := Owner(fmt.Sprintf("%016x", host))
		r.Merge(Claim{p, Version{counter, o}, o})
	}
	claim(netip.MustParsePrefix("0.0.0.0/0"), 0)
	for network := range 256 {
		base := number{0, 10<<24 | 128<<16 | uint64(network)<<10}
		for share := range 100 {
			claim(netip.PrefixFrom(base.add(number{0, uint64(share) << 3}).addr(32), 29), (network*7+share)%1000)
		}
	}
	return r
}

func TestReadersAndClonersTogether(t *testing.T) {
	r := ringOfHosts()
	network := netip.MustParsePrefix("10.128.4.0/22")
	want := fmt.Sprint(r.Counts(network))
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 20 {
				c := r.Clone()
				o := Owner(fmt.Sprintf("%016x", i))
				c.Merge(Claim{network, Version{1 << 40, o}, o})
				if got := fmt.Sprint(r.Counts(network)); got != want {
					t.Errorf("a clone changed the original: %s", got)
				}
				if !c.OwnsAll(o, network) {
					t.Errorf("the clone did not change")
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkRing(b *testing.B) {
	r := ringOfHosts()
	network, all := netip.MustParsePrefix("10.130.0.0/22"), netip.MustParsePrefix("0.0.0.0/0")
	addr, owner := netip.MustParseAddr("10.130.1.77"), Owner(fmt.Sprintf("%016x", 5))
	b.Logf("%d claims", r.Len())
	b.Run("Owner", func(b *testing.B) {
		for b.Loop() {
			r.Owner(addr)
		}
	})
	b.Run("OwnedInNetwork", func(b *testing.B) {
		for b.Loop() {
			r.Owned(owner, network)
		}
	})
	b.Run("OwnedInAll", func(b *testing.B) {
		for b.Loop() {
			r.Owned(owner, all)
		}
	})
	b.Run("CloneAndMerge", func(b *testing.B) {
		c := Claim{network, Version{1 << 40, owner}, owner}
		for b.Loop() {
			r.Clone().Merge(c)
		}
	})
}
