package driver

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/cluster"
)

// canEncrypt says why a network called name cannot be made here, if not at all for lack of what encrypts: with the option encrypted, or since the cluster's is
// encrypted. An older agent would take part in it in the clear, and a network that is there is not changed by who joins it.
func canEncrypt(snap *cluster.Snapshot, self cluster.NodeID, cannot error, name string, o networkOptions) error {
	n, there := cluster.Get[cluster.Network](snap, name)
	there = there && !n.Removed
	if !o.encrypted && !(there && n.Encrypted()) {
		return nil
	}
	if cannot != nil {
		return fmt.Errorf("network %s is encrypted, and this host cannot encrypt: %w", strings.TrimPrefix(name, provisional), cannot)
	}
	if there && !n.Encrypted() {
		return fmt.Errorf("option encrypted: the cluster has a network %s that is not encrypted; leave the option out to join it, or remove it on all hosts (`docker network rm %s`) and make it again", name, name)
	}
	if o.replica || there {
		return nil
	}
	var older []string
	for n := range cluster.All[cluster.Node](snap) {
		if n.ID != self && !n.KnowsEncrypted && !n.Encrypts() {
			older = append(older, fmt.Sprintf("%s (%s)", n.Name, n.Agent))
		}
	}
	if slices.Sort(older); len(older) > 0 {
		return fmt.Errorf("option encrypted: hosts with an older agent do not know encrypted networks, and send what is for them in the clear: %s; upgrade their agents first, or `grapevine forget` hosts that are gone", strings.Join(older, ", "))
	}
	return nil
}
