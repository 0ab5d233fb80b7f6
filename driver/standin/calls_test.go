package standin

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/grapevine-net/grapevine/host/plugin"
)

// swarmCalls are those of Swarm's managers, which ask drivers of global scope alone.
var swarmCalls = []string{"AllocateNetwork", "FreeNetwork", "DiscoverNew", "DiscoverDelete"}

// TestStandinsKnowAllCalls: what the drivers answer Docker is answered as well by who stands in for them, and where a
// host has left.
func TestStandinsKnowAllCalls(t *testing.T) {
	registered := regexp.MustCompile(`plugin\.Handle\(s, plugin\.(Network|IPAM), "(\w+)"`)
	drivers := map[string]plugin.Driver{"Network": plugin.Network, "IPAM": plugin.IPAM}
	var found int
	for _, file := range []string{"../calls.go", "../../ipam/driver.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range registered.FindAllStringSubmatch(string(text), -1) {
			found++
			d := drivers[m[1]]
			if !slices.Contains(slices.Concat(makingCalls[d], removalCalls[d], swarmCalls), m[2]) {
				t.Errorf("%s.%s, of %s, is in neither makingCalls nor removalCalls", d, m[2], file)
			}
		}
	}
	if found < 15 {
		t.Errorf("%d calls were found: their form has changed", found)
	}
}
