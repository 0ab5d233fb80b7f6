package nat

import (
	"slices"
	"testing"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// TestOthers: of nftables' tables those of other programs that do something to packets, and neither iptables' nor the agent's own.
func TestOthers(t *testing.T) {
	linktest.New(t).Do(func() {
		if got := Others(); len(got) > 0 {
			t.Errorf("in an empty namespace: %v", got)
		}
		for _, table := range []string{"inet firewalld", "ip filter", "inet grapevine", "ip6 mine", "inet filter"} {
			run(t, "nft", "add table "+table+"; add chain "+table+" in { type filter hook input priority 0; }")
		}
		run(t, "nft", "add table inet idle; add chain inet idle nowhere")
		if got, want := Others(), []string{"inet filter", "inet firewalld", "ip6 mine"}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}
