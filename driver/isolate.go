package driver

import (
	"fmt"
	"strings"

	"github.com/grapevine-net/grapevine/cluster"
)

// canIsolate says why a network called name cannot be made with the option isolate: an older agent would take part in
// it without the isolation, and a network that is there is not changed by who joins it.
func canIsolate(snap *cluster.Snapshot, self cluster.NodeID, name string, o networkOptions) error {
	if !o.isolate || o.replica {
		return nil
	}
	if n, there := cluster.Get[cluster.Network](snap, name); there && !n.Removed && !n.Isolated() {
		return fmt.Errorf("option isolate=true: the cluster has a network %s that is not isolated; leave the option out to join it, or remove it on all hosts (`docker network rm %s`) and make it again", name, name)
	}
	mine, _ := cluster.Get[cluster.Node](snap, string(self))
	var older []string
	for n := range cluster.All[cluster.Node](snap) {
		if n.Enforces < cluster.EnforcesV2 && n.Agent != mine.Agent {
			older = append(older, fmt.Sprintf("%s (%s)", n.Name, n.Agent))
		}
	}
	if len(older) > 0 {
		return fmt.Errorf("option isolate=true: hosts with an older agent would not isolate their containers: %s; upgrade their agents first", strings.Join(older, ", "))
	}
	return nil
}
