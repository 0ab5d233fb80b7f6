package ring_test

import (
	"fmt"
	"net/netip"

	"github.com/grapevine-net/grapevine/ring"
)

// Two hosts share a range: the first owns all of it and gives half away. In whatever order claims come,
// both know the same owner.
func ExampleRing() {
	const host1, host2 = ring.Owner("0000000000000001"), ring.Owner("0000000000000002")
	all, half := netip.MustParsePrefix("10.128.0.0/16"), netip.MustParsePrefix("10.128.128.0/17")
	seed := ring.Claim{Block: all, Version: ring.Version{Counter: 1, By: host1}, Owner: host1}
	gift := ring.Claim{Block: half, Version: ring.Version{Counter: 2, By: host1}, Owner: host2}

	var one, two ring.Ring
	one.Merge(seed, gift)
	two.Merge(gift)
	two.Merge(seed)
	for _, r := range []*ring.Ring{&one, &two} {
		low, _ := r.Owner(netip.MustParseAddr("10.128.0.7"))
		high, _ := r.Owner(netip.MustParseAddr("10.128.200.7"))
		fmt.Println(low.Owner, high.Owner, r.Owned(host1, all))
	}
	// Output:
	// 0000000000000001 0000000000000002 [10.128.0.0/17]
	// 0000000000000001 0000000000000002 [10.128.0.0/17]
}
