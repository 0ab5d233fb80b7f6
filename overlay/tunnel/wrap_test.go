package tunnel

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/encap"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// A kernel without a kind of device is told from one with it, by what is to be done, and nothing is left of the trial.
func TestCanWrap(t *testing.T) {
	linktest.New(t).Do(func() {
		for i, k := range []encap.Kind{encap.VXLAN, encap.Geneve, encap.GRE, encap.GRE} {
			v6 := i == 3
			out, err := exec.Command("ip", "link", "add", "other", "type", k.Device(v6), "external").CombinedOutput()
			has := err == nil || !strings.Contains(string(out), "Unknown device type") && !strings.Contains(string(out), "not supported")
			if err == nil {
				ok(t, link.Delete("other"))
				killed, err := exec.Command("ip", "link", "add", probe, "type", k.Device(v6), "external").CombinedOutput()
				if err != nil {
					t.Fatalf("%s: %v", killed, err)
				}
			}
			err = CanWrap(k, v6)
			if has != (err == nil) || err != nil && !strings.Contains(err.Error(), "modprobe "+k.Module(v6)) {
				t.Errorf("%s: this kernel has it: %t (%s); said was %v", k.Device(v6), has, out, err)
			}
		}
		if left, err := link.List("gv"); err != nil || len(left) != 0 {
			t.Errorf("left are %v, %v", left, err)
		}
	})
}
