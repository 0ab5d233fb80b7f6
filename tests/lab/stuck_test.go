package lab_test

import (
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// docker run waits for the agent, and the agent for a switch that hangs.
func TestStuckTellsWhatACommandWaitsFor(t *testing.T) {
	t.Parallel()
	ctx, l := newLab(t, lab.Options{Hosts: 1})
	h, run := l.Hosts[0], must(t)
	run("", l.StartAgents(ctx))
	run(h.Docker(ctx, "network", "create", "-d", "grapevine", "--ipam-driver", "grapevine", "blue"))
	run("", lab.Eventually(ctx, 10*time.Second, func() error {
		_, err := h.Exec(ctx, "sh", "-c", "kill -STOP $(cat /run/grapevine/ovs/ovs-vswitchd.pid)")
		return err
	}))
	ended := make(chan error, 1)
	go func() {
		_, err := h.Docker(ctx, "run", "-d", "--network", "blue", lab.Image)
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("docker run does not wait for a switch that hangs: %v", err)
	case <-time.After(3 * time.Second):
	}
	said := l.Stuck()
	for _, want := range []string{"docker run -d", "postContainersStart", "overlay.(*Overlay).Attach"} {
		if !strings.Contains(said, want) {
			t.Errorf("nothing is said of %s", want)
		}
	}
	if t.Failed() {
		t.Log(said)
	}
}
