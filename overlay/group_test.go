package overlay

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// TestOpenFlowGroups: a group of OpenFlow comes before the flow that uses it, changes and goes after it, each by one Diff and one bundle with
// the flows, and the switch gives it back as it was written.
func TestOpenFlowGroups(t *testing.T) {
	_, b := ovstest.Start(t)
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	const bucket0, bucket1, all = "bucket=weight:100,actions=output:1", "bucket=weight:50,actions=output:2", "bucket=actions=output:1,bucket=actions=output:2"
	r := &reconciler{cfg: Config{Bridge: b}}
	uses := pipeline.Flow{Table: 3, Priority: 7, Cookie: 9, Match: "ip", Actions: "group:5"}
	plain := pipeline.Flow{Table: 4, Priority: 7, Cookie: 9, Match: "ip", Actions: "drop"}
	have, err := r.dump(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]pipeline.Flow{
		{uses, plain, pipeline.GroupEntry(5, "type=select,"+bucket0)},
		{uses, plain, pipeline.GroupEntry(5, "type=select,"+bucket0+","+bucket1)},
		{uses, pipeline.GroupEntry(5, "type=select,"+bucket1), pipeline.GroupEntry(6, "type=all,"+all)},
		{plain},
		{},
	} {
		changes := pipeline.Diff(have, want)
		if err := b.ApplyBundle(t.Context(), changes.Lines()); err != nil {
			t.Fatalf("%d: %v: %q", i, err, changes.Lines())
		}
		if have, err = r.dump(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if left := pipeline.Diff(have, want); !left.Empty() || pipeline.AnyGroup(have) != pipeline.AnyGroup(want) {
			t.Errorf("%d: the switch has %v, want %v", i, have, want)
		}
	}
	if err := b.ApplyBundle(t.Context(), []string{pipeline.GroupEntry(7, "type=all,"+all).Add(), pipeline.Flow{Match: "no=match"}.Add()}); err == nil {
		t.Error("a bundle with a bad flow is applied")
	}
	if groups, err := b.DumpGroups(t.Context()); err != nil || len(groups) > 0 {
		t.Errorf("of a bundle with a bad flow: %v, %v", groups, err)
	}
}

// TestForeignGroup: a group that somebody has made in the bridge goes when an agent begins, as a flow does.
func TestForeignGroup(t *testing.T) {
	h := newHost(t)
	h.container('a', "blue", "10.128.0.7", "10.128.0.1")
	h.stop()
	before := h.flows()
	if out, err := exec.Command("ovs-ofctl", "-O", "OpenFlow14", "add-group", "unix:"+filepath.Join(h.bridge.RunDir, h.bridge.Name+".mgmt"), "group_id=7,type=all,bucket=output:1").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	h.start()
	if err := h.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if groups, err := h.bridge.DumpGroups(t.Context()); err != nil || len(groups) > 0 {
		t.Errorf("it is still there: %v, %v", groups, err)
	}
	if after := h.flows(); !slices.Equal(before, after) {
		t.Errorf("flows before\n%s\nafter\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}
