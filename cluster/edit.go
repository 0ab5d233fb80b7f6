package cluster

import (
	"errors"
	"fmt"
	"slices"
)

// Edit is the Version of an edit of a policy or a realm.
type Edit struct {
	_       struct{} `cbor:",toarray"`
	Counter uint64
	Node    NodeID
}

// MaxBase is how many edits before it a body names: so many may be made while two hosts do not hear each other,
// until the one that loses is not told any more.
const MaxBase = 8

// edited is a body that says over which edits it was made: the newest first, tombstones included.
type edited interface {
	Body
	base() []Edit
}

func edits(list []Edit) (err error) {
	if len(list) > maxEntries { // more than is written: who writes more is to be understood
		err = fmt.Errorf("%d edits before it, at most %d", len(list), maxEntries)
	}
	for _, e := range list {
		err = errors.Join(err, host("host of an edit before it", e.Node))
	}
	return err
}

// over are the edits over which one is made that takes the place of what a snapshot has under a key, if it has
// anything. lost are edits that its author knows to be lost.
func over(s *Snapshot, k Key, lost []Version) (base []Edit) {
	old, there := s.Record(k)
	if !there {
		return nil
	}
	base = []Edit{{Counter: old.Version.Counter, Node: old.Version.Node}}
	for _, v := range lost {
		base = append(base, Edit{Counter: v.Counter, Node: v.Node})
	}
	if was, live := old.Body.(edited); live {
		base = append(base, was.base()...)
	}
	slices.SortStableFunc(base[1:], func(a, b Edit) int { return Version{b.Counter, b.Node}.Compare(Version{a.Counter, a.Node}) })
	base = slices.Compact(base)
	return base[:min(len(base), MaxBase)]
}

// lost says whether one of two records whose bodies are edited, which are the one that stays and the one that goes,
// is such an edit: the winner does not name it among those before it, and names some that are older, or all.
func lost(winner, loser *Record) (l Lost, is bool) {
	w, live := winner.Body.(edited)
	if !live || winner.Version.Node == loser.Version.Node {
		return l, false
	}
	for i, e := range w.base() {
		order := Version{e.Counter, e.Node}.Compare(loser.Version)
		if order == 0 || order > 0 && i == MaxBase-1 {
			return l, false
		}
	}
	return Lost{Edit: *kept(loser), Winner: *kept(winner)}, true
}
