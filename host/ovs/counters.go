package ovs

import (
	"fmt"
	"os"

	"github.com/digitalocean/go-openvswitch/ovsnl"
)

// Counters is what Open vSwitch's datapath in the kernel counts since it was made. All bridges of
// a host share one.
type Counters struct {
	Hit    uint64 // packets that found a flow
	Missed uint64 // packets that went up to ovs-vswitchd for a flow
	Lost   uint64 // packets of those that were dropped: ovs-vswitchd did not take them in time
	Flows  uint64 // flows that there are now
	Masks  uint32 // kinds of match among them: a look-up tries one after the other
}

// KernelCounters asks the kernel, which answers at once. The error wraps os.ErrNotExist if
// there is no datapath.
func KernelCounters() (Counters, error) {
	c, err := ovsnl.New()
	if err != nil {
		return Counters{}, fmt.Errorf("ask the kernel for Open vSwitch's datapath: %w", err)
	}
	defer c.Close()
	if c.Datapath == nil { // of another family of Open vSwitch's alone
		return Counters{}, fmt.Errorf("ask the kernel for Open vSwitch's datapath: %w", os.ErrNotExist)
	}
	list, err := c.Datapath.List()
	if err != nil {
		return Counters{}, fmt.Errorf("list Open vSwitch's datapaths in the kernel: %w", err)
	}
	for _, d := range list {
		if d.Name == systemDatapath {
			return Counters{
				Hit: d.Stats.Hit, Missed: d.Stats.Missed, Lost: d.Stats.Lost, Flows: d.Stats.Flows, Masks: d.MegaflowStats.Masks,
			}, nil
		}
	}
	return Counters{}, fmt.Errorf("find %s among Open vSwitch's datapaths in the kernel: %w", systemDatapath, os.ErrNotExist)
}
