package edit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
)

// Failing says which containers' connections to services do not go where they should, of the endpoints in whose sandboxes the rules
// could not be set, and why.
func Failing(snap *cluster.Snapshot, failed map[string]string) []api.Problem {
	if len(failed) == 0 {
		return nil
	}
	ids := slices.Sorted(maps.Keys(failed))
	var who []string
	for _, id := range ids {
		if e, ok := cluster.Get[cluster.Endpoint](snap, id); ok && e.Name != "" {
			who = append(who, e.Name)
		}
	}
	return []api.Problem{{
		Code: api.ServicesFail,
		What: fmt.Sprintf("connections to services do not go where they should from %s: %s", strings.Join(who, ", "), failed[ids[0]]),
		Do:   "restart the container; one with NET_ADMIN may have changed its own rules (nft list ruleset, inside)",
	}}
}
