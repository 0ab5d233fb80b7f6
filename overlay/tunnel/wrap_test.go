package tunnel

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// A kernel without Geneve is told from one with it, by what is to be done, and nothing is left of the trial.
func TestCanWrap(t *testing.T) {
	linktest.New(t).Do(func() {
		out, err := exec.Command("ip", "link", "add", "other", "type", "geneve", "external").CombinedOutput()
		has := err == nil || !strings.Contains(string(out), "Unknown device type") && !strings.Contains(string(out), "not supported")
		if err == nil {
			ok(t, link.Delete("other"))
		}
		err = CanWrap()
		if has != (err == nil) || err != nil && !strings.Contains(err.Error(), "modprobe geneve") {
			t.Errorf("this kernel has it: %t (%s); said was %v", has, out, err)
		}
		if left, err := link.List("gv"); err != nil || len(left) != 0 {
			t.Errorf("left are %v, %v", left, err)
		}
	})
}
