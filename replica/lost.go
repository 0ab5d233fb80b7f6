package replica

import (
	"maps"
	"slices"
	"sync"

	"github.com/grapevine-net/grapevine/cluster"
)

// maxLost is how many edits that were lost are remembered.
const maxLost = 100

// lost remembers edits of policies that were lost to others, until somebody has edited the policy again or the agent
// ends.
type lost struct {
	mu    sync.Mutex
	edits map[cluster.Version]cluster.Lost // by that of the edit
}

func (l *lost) note(list []cluster.Lost) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range list {
		if l.edits == nil {
			l.edits = map[cluster.Version]cluster.Lost{}
		}
		if len(l.edits) < maxLost {
			l.edits[one.Edit.Version] = one
		}
	}
}

// Lost returns the edits of policies that were lost to those that are there now.
func (r *Replica) Lost() []cluster.Lost {
	snap := r.Snapshot()
	r.lost.mu.Lock()
	defer r.lost.mu.Unlock()
	maps.DeleteFunc(r.lost.edits, func(_ cluster.Version, l cluster.Lost) bool {
		now, there := snap.Record(l.Winner.Key)
		return !there || now.Version != l.Winner.Version
	})
	return slices.SortedFunc(maps.Values(r.lost.edits), func(a, b cluster.Lost) int { return a.Edit.Version.Compare(b.Edit.Version) })
}
