package ovs

import (
	"maps"
	"slices"
	"testing"
)

func TestPortsIn(t *testing.T) {
	const show = `system@ovs-system:
  lookups: hit:25 missed:9 lost:0
  flows: 0
  masks: hit:34 total:0 hit/pkt:1.00
  port 0: ovs-system (internal)
  port 1: gvbr0 (internal)
  port 2: vxlan_sys_4789 (vxlan: packet_type=ptap)
  port 4: gv3f1c00aa11bb
`
	got := slices.Sorted(maps.Keys(portsIn(show)))
	if want := []string{"gv3f1c00aa11bb", "gvbr0", "ovs-system", "vxlan_sys_4789"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A life of ovs-vswitchd is settled by itself only, and without a kernel's datapath always.
func TestSettled(t *testing.T) {
	e := &Embedded{Datapath: Kernel}
	if e.Settled() {
		t.Error("settled before anything is known")
	}
	e.settled.Store(e.life.Load() + 1)
	if !e.Settled() {
		t.Error("not settled")
	}
	e.unsettle()
	if e.Settled() {
		t.Error("settled with the flows of a former life")
	}
	if u := (&Embedded{Datapath: Userspace}); !u.Settled() {
		t.Error("the userspace datapath has no flows of a former life")
	}
}
