package policy

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestIncrementalIsWhole: after whatever changes, a compiler says what one says that sees the world
// for the first time.
func TestIncrementalIsWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, synced := NewCompiler(), NewCompiler()
		networks, endpoints, policies := map[string]Network{}, map[string]Endpoint{}, map[Key]Policy{}
		var ranges []Range
		for step := range rapid.IntRange(1, 25).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "change") {
			case 0:
				n := Network{Name: fmt.Sprint("n", rapid.IntRange(0, 2).Draw(t, "network")), Labels: drawLabels(t)}
				networks[n.Name] = n
				c.PutNetwork(n)
			case 1:
				name := fmt.Sprint("n", rapid.IntRange(0, 2).Draw(t, "network"))
				delete(networks, name)
				c.DeleteNetwork(name)
			case 2, 3, 4:
				e := drawEndpoint(t, rapid.IntRange(0, 6).Draw(t, "endpoint"), false)
				endpoints[e.ID] = e
				c.PutEndpoint(e)
			case 5:
				id := fmt.Sprint("e", rapid.IntRange(0, 6).Draw(t, "endpoint"))
				delete(endpoints, id)
				c.DeleteEndpoint(id)
			case 6, 7:
				p := drawPolicy(t, fmt.Sprint("p", rapid.IntRange(0, 5).Draw(t, "policy")))
				policies[p.Key] = p
				c.PutPolicy(p)
			case 8:
				if keys := slices.SortedFunc(maps.Keys(policies), Key.compare); len(keys) > 0 {
					key := rapid.SampledFrom(keys).Draw(t, "key")
					delete(policies, key)
					c.DeletePolicy(key)
				}
			case 9:
				ranges = nil
				if rapid.Bool().Draw(t, "range") {
					ranges = []Range{{Network: "n0", Prefix: drawBlock(t).Prefix}}
				}
				c.SetRanges(ranges)
			}
			w := World{
				Networks: slices.Collect(maps.Values(networks)), Endpoints: slices.Collect(maps.Values(endpoints)), Ranges: ranges,
				Policies: slices.Collect(maps.Values(policies)),
			}
			if got, want := c.Compile(), w.Compile(); !equalCompiled(got, want) {
				t.Fatalf("after step %d\n%+v\nat once\n%+v", step, got, want)
			}
			synced.Sync(w)
			if got, want := synced.Compile(), w.Compile(); !equalCompiled(got, want) {
				t.Fatalf("synced after step %d\n%+v\nat once\n%+v", step, got, want)
			}
		}
		for id := range endpoints {
			c.DeleteEndpoint(id)
		}
		for key := range policies {
			c.DeletePolicy(key)
		}
		for name := range networks {
			c.DeleteNetwork(name)
		}
		c.SetRanges(nil)
		c.settle()
		if n := len(c.kinds) + len(c.classes) + len(c.sets) + len(c.byLabel) + len(c.unknown) + len(c.ported) + len(c.chosen.list) + len(c.names) + len(c.networks); n > 0 {
			t.Fatalf("an empty world leaves %+v", c)
		}
	})
}
