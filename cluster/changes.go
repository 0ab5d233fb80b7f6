package cluster

// change is one record that was put in or removed, in a list from the newest back.
// The first of a list is no change: what was before it is not remembered.
type change struct {
	key    Key
	before *change
	number int // of changes in the list
}

// maxChanges is how many changes are remembered: with more, whoever follows looks at
// everything again.
const maxChanges = 1024

// note remembers a change. What a snapshot has of the list never changes.
func (s *Snapshot) note(k Key) {
	before := s.changes
	if before.number == maxChanges {
		before = &change{} // stands for the state as it is, and for no change
	}
	s.changes = &change{k, before, before.number + 1}
}

// Since returns the keys of the records that were put in or removed since an earlier
// snapshot of the same State, or of one that it was cloned from; a key that changed twice
// is there twice. It returns false if that is not known: old is nil, of another State, or
// too many changes ago.
func (s *Snapshot) Since(old *Snapshot) (keys []Key, known bool) {
	if old == nil {
		return nil, false
	}
	c := s.changes
	for ; c != nil && c != old.changes; c = c.before {
		keys = append(keys, c.key)
	}
	return keys, c != nil
}
