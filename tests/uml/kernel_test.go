package uml

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
	"github.com/grapevine-net/grapevine/tests/turns"
)

// Each host has a kernel of its own with the openvswitch module, and a disk that
// keeps what was synced, and only that, when the power goes. It has Geneve and GRE as well.
func TestKernelAndDisk(t *testing.T) {
	if *byTurns && turns.Of(fifths) != 2 {
		t.Skip("not in this fifth: it goes with host-ovs, which is short")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	l, err := lab.New(ctx, lab.Options{Hosts: 2, Kind: lab.UML, Progress: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	a, b := l.Hosts[0], l.Hosts[1]
	run := func(h *lab.Host, line string) string {
		t.Helper()
		out, err := h.Exec(ctx, "sh", "-c", line)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	run(a, "busybox ping -c 3 -W 2 "+b.Addr().String())
	run(a, "busybox ping -c 3 -W 2 "+lab.OutsideAddr)
	// What host/capability cannot show on a kernel without modules.
	if out, err := a.Exec(ctx, "setpriv", "--bounding-set=-sys_module", "modprobe", "openvswitch"); err == nil {
		t.Errorf("openvswitch was loaded without CAP_SYS_MODULE: %s", out)
	}
	run(a, "setpriv --bounding-set=-all,+sys_module modprobe openvswitch")
	if err := a.StartOVS(ctx); err != nil {
		t.Fatal(err)
	}
	run(a, "ovs-vsctl add-br lab0")
	if got := run(a, "ovs-dpctl show"); !strings.Contains(got, "system@ovs-system") || !strings.Contains(got, "lab0") {
		t.Errorf("the kernel datapath is:\n%s", got)
	}
	if got := run(b, "docker run --rm --network none "+lab.Image+" echo from inside"); got != "from inside" {
		t.Errorf("a container said %q", got)
	}
	tunnelInGeneve(ctx, t, l, b)
	run(b, "echo kept > /etc/synced; sync; echo lost > /etc/unsynced")
	if err := b.PowerOff(); err != nil {
		t.Fatal(err)
	}
	if err := b.Boot(ctx); err != nil {
		t.Fatal(err)
	}
	if got := run(b, "cat /etc/synced; cat /etc/unsynced 2>/dev/null || true"); got != "kept" {
		t.Errorf("after a power loss the disk has %q, want what was synced only", got)
	}
}
