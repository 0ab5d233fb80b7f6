package plane

import (
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/host/ovs"
)

// TestCanWrap: with the userspace datapath there is VXLAN alone.
func TestCanWrap(t *testing.T) {
	for _, kind := range []string{"", "vxlan"} {
		for _, datapath := range []ovs.Datapath{ovs.Kernel, ovs.Userspace} {
			if err := CanWrap(config.Config{Encap: kind}, datapath); err != nil {
				t.Errorf("%q with %v: %v", kind, datapath, err)
			}
		}
	}
	if err := CanWrap(config.Config{Encap: "geneve"}, ovs.Userspace); err == nil || !strings.Contains(err.Error(), "load the module openvswitch") {
		t.Errorf("geneve with the userspace datapath: %v", err)
	}
}
