package worlds

import (
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/policy"
)

// Trial is a policy that is only tried.
type Trial struct {
	Record cluster.Record
	Policy policy.Policy // if Err is nil
	// Err says why this agent cannot try it: a newer one wrote it.
	Err error
}

// Trials are the policies that are only tried.
func Trials(snap *cluster.Snapshot) (list []Trial) {
	for t := range cluster.All[cluster.Trial](snap) {
		rec, _ := snap.Record(t.Key())
		one := parse(t.Policy(), rec.Version)
		list = append(list, Trial{rec, one.policy, one.err})
	}
	return list
}

// Tried is the world as it would be if policies that are tried were in force, and which these are, as they would be enforced.
func (w *World) Tried(trials []Trial) (policy.World, map[policy.Key]bool) {
	var ready []policy.Policy
	keys := map[policy.Key]bool{}
	for _, t := range trials {
		if t.Err != nil {
			continue
		}
		for _, p := range w.Ready(t.Policy) {
			ready = append(ready, p)
			keys[p.Key] = true
		}
	}
	return w.With(ready...), keys
}
