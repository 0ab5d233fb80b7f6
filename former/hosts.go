package former

import "github.com/grapevine-net/grapevine/cluster"

// Unheard says of this host's endpoints with which hosts they do not talk yet, in the form of overlay.Config.Unheard: nil hosts, with
// none. It does not block.
func (k *Keeper) Unheard(snap *cluster.Snapshot) map[string][]cluster.NodeID {
	waiting := k.Waiting(snap)
	if waiting == nil {
		return nil
	}
	out := make(map[string][]cluster.NodeID, len(waiting))
	for id, w := range waiting {
		if out[id] = w.Hosts; w.All {
			out[id] = nil
		}
	}
	return out
}
