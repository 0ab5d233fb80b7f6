package uml

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// tunnelInGeneve runs the tests of the userspace datapath's tunnel on a host whose kernel has Geneve, and GRE: the machine's own may
// have none, and Open vSwitch's userspace datapath takes minutes to start here.
func tunnelInGeneve(ctx context.Context, t *testing.T, l *lab.Lab, h *lab.Host) {
	program := filepath.Join(t.TempDir(), "tunnel.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", program, "../../overlay/tunnel")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the tunnel's tests: %v: %s", err, out)
	}
	there, err := l.Share(program)
	if err != nil {
		t.Fatal(err)
	}
	// The one left out counts packets that a loop of a millisecond sends, for which this kernel is too slow.
	out, err := h.Exec(ctx, "sh", "-c", "modprobe -a geneve vxlan veth && CI=1 "+there+" -encap=geneve -test.v -test.skip=TestRestartLosesNothing")
	if err != nil || !strings.Contains(out, "--- PASS: TestAnotherWrapping") || strings.Contains(out, "--- SKIP") {
		t.Errorf("the tunnel's tests in Geneve: %v\n%s", err, out)
	}
	// Of GRE there is a device for each family of addresses: those in which all hosts are of one.
	out, err = h.Exec(ctx, "sh", "-c", "modprobe -a ip_gre ip6_gre && CI=1 "+there+" -encap=gre -test.v -test.run='TestOneFamily|TestCanWrap'")
	if err != nil || strings.Count(out, "--- PASS") != 2 {
		t.Errorf("the tunnel's tests in GRE: %v\n%s", err, out)
	}
}
