package nat

import (
	"slices"
	"strings"
	"testing"
)

// FuzzRules: what `iptables -S` prints of a chain is taken for its rules only if it is them.
// Anything else, also of a chain whose name begins or ends like its, has the chain replaced.
func FuzzRules(f *testing.F) {
	f.Add("-N GRAPEVINE-PORTS\n-A GRAPEVINE-PORTS -p tcp -j ACCEPT\n-A GRAPEVINE-PORTS -j DROP")
	f.Add("-A GRAPEVINE-PORTS\n-A GRAPEVINE-PORTS \n-A GRAPEVINE-PORTS-A -A GRAPEVINE-PORTS")
	f.Add("Warning: iptables-legacy tables present\n-P FORWARD DROP\n-A X -j GRAPEVINE-PORTS")
	c := chain{table: "nat", name: Ports}
	f.Fuzz(func(t *testing.T, out string) {
		lines := strings.Split(out, "\n")
		got := c.parse(lines)
		if got == nil {
			t.Error("a chain that is there is taken for one that is not")
		}
		var printed []string
		for _, l := range lines {
			if strings.HasPrefix(l, "-A "+Ports+" ") {
				printed = append(printed, l)
			}
		}
		for i, r := range got {
			got[i] = "-A " + Ports + " " + r
		}
		if !slices.Equal(got, printed) {
			t.Errorf("%q: %q", out, got)
		}
	})
}
