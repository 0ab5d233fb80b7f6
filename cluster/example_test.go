package cluster_test

import (
	"fmt"

	"github.com/grapevine-net/grapevine/cluster"
)

// What one host writes reaches another as a message, and both know the same then. That it comes again changes nothing.
func ExampleState_Merge() {
	one, two := cluster.New("0000000000000001"), cluster.New("0000000000000002")
	if _, _, err := one.Put(cluster.Network{Name: "blue", VNID: 7}); err != nil {
		fmt.Println(err)
		return
	}
	for missing := range cluster.Chunks(one.Missing(two.Digest()), 1<<16) {
		for range 2 {
			message, err := cluster.DecodeMessage(missing)
			if err != nil {
				fmt.Println(err)
				return
			}
			merged, err := two.Merge(message.Records)
			fmt.Println(len(merged.Fresh), "new", err)
		}
	}
	blue, known := cluster.Get[cluster.Network](two.Snapshot(), "blue")
	fmt.Println(blue.Name, blue.VNID, known)
	// Output:
	// 1 new <nil>
	// 0 new <nil>
	// blue 7 true
}
