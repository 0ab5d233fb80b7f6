package metrics

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
)

// TestPolicies: what rules count is shown by policy, from the start, and of equal rules for each policy; a rule that counts
// anew, a switch that does not answer and more policies than there are labels let nothing fall; what is gone goes.
func TestPolicies(t *testing.T) {
	f := facts()
	f.Policies = []string{"shop/db", "shop/db2", "no-lan"}
	f.Rules = []api.RuleCount{
		{Rule: "shop/db ingress[0] +1", Also: []string{"shop/db2 ingress[0]"}, Action: "Accept", Packets: 20, Bytes: 2000, Connections: 2},
		{Rule: "shop/db ingress[1]", Action: "Accept", Packets: 1, Bytes: 60, Connections: 1},
		{Rule: "shop/db ingress[1]", Action: "Accept", Packets: 1, Bytes: 60, Connections: 1}, // a port by name
		{Action: "Deny", Direction: "ingress", Network: "shop", Container: "db-1", Policies: []string{"shop/db", "shop/db2"}, Packets: 5, Bytes: 300},
		{Rule: "no-lan egress[0]", Action: api.WouldDeny, Connections: 8},
		{Rule: "not isolated, egress", Action: "Accept", Packets: 99},
	}
	h := New(func() Facts { return f }).Handler()
	line := func(what, of, rest string, n int) string {
		return fmt.Sprintf(`grapevine_policy_%s_total{policy="%s"%s} %d`, what, of, rest, n)
	}
	const allowed, denied = `,verdict="allowed"`, `,verdict="denied"`
	wants(t, scrape(t, h),
		line("connections", "shop/db", "", 4), line("packets", "shop/db", allowed, 22), line("bytes", "shop/db", allowed, 2120), line("packets", "shop/db", denied, 5),
		line("connections", "shop/db2", "", 2), line("packets", "shop/db2", allowed, 20), line("bytes", "shop/db2", denied, 300), line("packets", "no-lan", denied, 0), line("would_deny", "no-lan", "", 8), line("would_deny", "shop/db", "", 0))
	f.Rules[0].Packets, f.Rules[0].Connections = 3, 1 // it changed
	f.Rules[3].Packets = 6
	wants(t, scrape(t, h), line("connections", "shop/db2", "", 3), line("packets", "shop/db2", allowed, 23), line("packets", "shop/db", denied, 6))
	f.RulesErr, f.Rules = errors.New("no answer"), nil
	wants(t, scrape(t, h), line("packets", "shop/db", denied, 6))
	f.RulesErr = nil
	for i := range maxPolicies {
		f.Policies = append(f.Policies, fmt.Sprintf("a%02d", i))
	}
	f.Rules = []api.RuleCount{{Rule: "shop/db ingress[1]", Action: "Accept", Packets: 7, Connections: 1}}
	text := scrape(t, h)
	wants(t, text, line("connections", "other", "", 1))
	if n := strings.Count(text, "\ngrapevine_policy_connections_total{"); n != maxPolicies+1 {
		t.Errorf("%d policies are shown", n)
	}
	f.Policies = f.Policies[:3]
	f.Rules[0].Packets = 8
	wants(t, scrape(t, h), line("packets", "shop/db", allowed, 22+3+1), line("connections", "shop/db", "", 4+1))
	f.Policies = f.Policies[1:]
	if text := scrape(t, h); strings.Contains(text, `policy="shop/db"`) || strings.Contains(text, `policy="other"`) {
		t.Errorf("series of a policy that is no more:\n%s", text)
	}
}
