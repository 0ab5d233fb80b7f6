package ovs_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
)

// pipelineFlows are the flows of package pipeline's golden files, without what
// follows the cookie's comma and a space: a line each, as the switch prints them.
func pipelineFlows(t testing.TB) (lines []string) {
	for _, mode := range []string{"metadata", "headerbits"} {
		text, err := os.ReadFile("../../overlay/pipeline/testdata/" + mode + ".flows")
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.Split(strings.TrimSpace(string(text)), "\n")...)
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// linkLocal matches those flows of an endpoint that only one with --link-local-ip has: the
// answers to who asks for that address. They are few enough to take ovs-ofctl's time.
var linkLocal = regexp.MustCompile(`(arp_tpa=169\.254\.|nd_target=fe80:)`)

// TestNativeFlows: what is encoded here is what the switch then has, to the letter,
// and so are its deletions.
func TestNativeFlows(t *testing.T) {
	_, b := ovstest.Start(t)
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	var add, del, want []string
	seen := map[string]bool{}
	for _, flow := range pipelineFlows(t) {
		cookie, rest, _ := strings.Cut(flow, ", ")
		match, actions, _ := strings.Cut(rest, " actions=")
		line := "add " + cookie + "," + match + ",actions=" + actions
		endpoint := strings.HasPrefix(cookie, "cookie=0x01") && cookie[len("cookie=0x0114"):][:2] == "01"
		switch native := ovs.IsNative(line); {
		case !native && endpoint && !linkLocal.MatchString(match):
			t.Errorf("a flow of an endpoint needs ovs-ofctl: %s", line)
			continue
		case !native || seen[match]:
			continue
		}
		seen[match] = true
		add, del, want = append(add, line), append(del, "delete_strict "+match), append(want, rest)
	}
	if len(add) < 40 {
		t.Errorf("only %d flows of the pipeline need no ovs-ofctl", len(add))
	}
	if err := b.Native(t.Context(), add); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sorted(want), dumped(t, b)); d != "" {
		t.Error("wanted (-) and in the switch (+):\n", d)
	}
	if err := b.Native(t.Context(), del); err != nil {
		t.Fatal(err)
	}
	if left := dumped(t, b); len(left) > 0 {
		t.Errorf("left after deletion: %q", left)
	}
}

func sorted(s []string) []string { slices.Sort(s); return s }

// dumped is the flows of the switch in the spelling of the golden files.
func dumped(t *testing.T, b *ovs.Bridge) (lines []string) {
	t.Helper()
	flows, err := b.DumpFlows(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range flows {
		match := ""
		if f.Match != "" {
			match = "," + f.Match
		}
		lines = append(lines, fmt.Sprintf("table=%d,priority=%d%s actions=%s", f.Table, f.Priority, match, f.Actions))
	}
	return sorted(lines)
}

// TestNativeBundleIsAtomic: if the switch refuses one flow, it has none.
func TestNativeBundleIsAtomic(t *testing.T) {
	_, b := ovstest.Start(t)
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := b.Native(t.Context(), []string{
		"add cookie=0x5,table=3,priority=7,ip,actions=goto_table:4",
		"add cookie=0x5,table=3,priority=7,arp,actions=goto_table:2", // backwards: refused
	})
	if err == nil || !strings.Contains(err.Error(), "refuses") {
		t.Errorf("a bundle with a bad flow: %v", err)
	}
	if have := dumped(t, b); len(have) > 0 {
		t.Errorf("after it: %q", have)
	}
}

// TestNotNative: what is not wholly understood is left to ovs-ofctl.
func TestNotNative(t *testing.T) {
	for _, line := range []string{
		"delete table=3",
		"add table=3,priority=7,in_port=LOCAL,actions=drop",
		"add table=3,priority=7,ct_state=+trk,actions=drop",
		"add table=3,priority=7,ip,nw_src=10.0.0.0/33,actions=drop",
		"add table=3,priority=7,ip,nw_src=2001:db8::1,actions=drop",
		"add table=3,priority=70000,ip,actions=drop",
		"add table=3,priority=7,idle_timeout=5,actions=drop",
		"add table=3,priority=7,actions=normal",
		"add table=3,priority=7,actions=set_field:5/7->reg0",
		"add table=3,priority=7,actions=goto_table:4,goto_table:5",
		"add table=3,priority=7,actions=load:0x1->NXM_NX_REG0[]",
	} {
		if ovs.IsNative(line) {
			t.Errorf("taken for understood: %s", line)
		}
	}
}
