package driver

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
)

// TestMetOnce: which subnets a network reaches is found once for all of its containers, not for each of them.
func TestMetOnce(t *testing.T) {
	s := cluster.New("00000000000000aa")
	put := func(b cluster.Body) {
		t.Helper()
		if _, _, err := s.Put(b); err != nil {
			t.Fatal(err)
		}
	}
	put(cluster.Network{Name: "vault", VNID: 1, Internal: true})
	put(cluster.Network{Name: "everyone"}) // VNID 0 reaches all
	for i := range 8 {
		put(cluster.Subnet{Prefix: netip.MustParsePrefix(fmt.Sprintf("10.128.%d.0/24", i)), Network: "everyone"})
	}
	met := metBy(s.Snapshot())
	if got := met("vault"); len(got) != 8 {
		t.Fatalf("vault reaches %v", got)
	}
	if n := testing.AllocsPerRun(10, func() { met("vault") }); n > 0 {
		t.Errorf("asked again, it takes %v allocations", n)
	}
}
