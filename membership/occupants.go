package membership

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/cluster"
)

// occupants names the containers of a host that are on networks, each of them once; by the
// endpoint's ID while its name is not known.
func occupants(snap *cluster.Snapshot, host cluster.NodeID) (names []string) {
	seen := map[string]bool{}
	for e := range cluster.All[cluster.Endpoint](snap) {
		if e.Host != host {
			continue
		}
		if id := cmp.Or(e.Container, e.Name, e.ID); !seen[id] {
			seen[id] = true
			name := cmp.Or(e.Name, fmt.Sprintf("endpoint %.12s", e.ID))
			if e.IsClient() {
				name = fmt.Sprintf("client %s: `grapevine client remove %s`", name, name)
			}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// attachedMost is how many containers are named.
const attachedMost = 10

// attachedText says who is attached.
func attachedText(names []string) string {
	are, some := "are", names
	if len(names) == 1 {
		are = "is"
	}
	if len(names) > attachedMost {
		some = append(slices.Clone(names[:attachedMost]), "...")
	}
	return fmt.Sprintf("%s %s attached to networks on this host (%s)", words.Plural(len(names), "container"), are, words.Listed(some))
}
