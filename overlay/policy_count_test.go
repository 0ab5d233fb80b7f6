package overlay

import (
	"fmt"
	"testing"

	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// TestRuleCountsWhatItJudges: the flow of a rule counts each connection that is answered once, whatever goes over it, and of
// what nobody answers each packet. So it says neither packets nor bytes of connections.
func TestRuleCountsWhatItJudges(t *testing.T) {
	r := newRuled(t)
	serve(t, "b", 80)
	r.enforce(r.policy("b", 1, lets(1, 2)...))
	const ingress = 2
	counts := func(what string, right func(packets uint64) bool) {
		t.Helper()
		ovstest.Eventually(t, long, func() error {
			_, err := r.bridge.Appctl(t.Context(), "revalidator/wait")
			if err != nil {
				return err
			}
			flows, err := r.bridge.DumpFlows(t.Context())
			if err != nil {
				return err
			}
			for _, f := range flows {
				if c := pipeline.ParseCookie(f.Cookie); c.Kind == pipeline.KindRule && c.Object == ingress && right(f.Packets) {
					return nil
				}
			}
			return fmt.Errorf("%s: the rule has another count", what)
		})
	}
	for i, network := range []string{"tcp", "udp"} {
		c, err := call(t, "a", network, "10.128.0.8:80", long)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if err := comesBack(c, long); err != nil {
				t.Fatal(err)
			}
		}
		counts("20 echoes by "+network, func(packets uint64) bool { return packets == uint64(i+1) })
	}
	c, err := call(t, "a", "udp", "10.128.0.8:4242", long)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		_, _ = c.Write([]byte("log")) // nobody listens: some may fail by what comes back
	}
	counts("datagrams that nobody answers", func(packets uint64) bool { return packets > 3 })
}
