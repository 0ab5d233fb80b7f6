package pipeline_test

import (
	"fmt"
	"net/netip"

	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// A range that is on another host takes three flows: one leads there, two accept what comes from there. They
// are as many, however many containers are in the range.
func ExampleDiff() {
	vtep := netip.MustParseAddr("192.0.2.2")
	in := pipeline.Input{
		Round: pipeline.Round, Tunnel: pipeline.Metadata, GatewayMAC: pipeline.RouterMAC, TunnelPort: 1, GatewayPort: 2, VXLANPort: 4789,
		VTEPs:   []pipeline.VTEP{{Addr: vtep, Index: 1}},
		Subnets: []pipeline.Subnet{{Prefix: netip.MustParsePrefix("10.128.0.0/22"), VNID: 7}},
	}
	before, err := pipeline.Compile(in)
	if err != nil {
		fmt.Println(err)
		return
	}
	in.Routes = append(in.Routes, pipeline.Route{Prefix: netip.MustParsePrefix("10.128.2.0/23"), VNID: 7, VTEP: vtep})
	after, err := pipeline.Compile(in)
	if err != nil {
		fmt.Println(err)
		return
	}
	changes := pipeline.Diff(before, after)
	fmt.Println(len(changes.Add), "more,", len(changes.Modify)+len(changes.Delete), "others")
	// Output:
	// 3 more, 0 others
}
