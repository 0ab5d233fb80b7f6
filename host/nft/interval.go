package nft

import (
	"bytes"
	"slices"
)

// span is a range of an interval set: its first value, and the first one after it (nil: there is none).
type span [2][]byte

func (s span) equal(o span) bool {
	return bytes.Equal(s[0], o[0]) && bytes.Equal(s[1], o[1]) && (s[1] == nil) == (o[1] == nil)
}

func (s span) key() string { return string(s[0]) + "-" + string(s[1]) }

// ranges are those of an interval set's values.
func ranges(values [][]byte) (list []span) {
	for pair := range slices.Chunk(values, 2) {
		list = append(list, span(pair))
	}
	return list
}

// disjoint reports whether no range of both lists lies in another one, in part or whole. While one is added inside
// another, the kernel's look-up can meet its ends, which do not count yet, and take what is between for nothing's: a rule
// that drops would let packets through until the change is done (nft_rbtree of Linux 6.18, from reading it).
func disjoint(lists ...[]span) bool {
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(a, b span) int { return bytes.Compare(a[0], b[0]) })
	all = slices.CompactFunc(all, span.equal)
	for i := 1; i < len(all); i++ {
		if end := all[i-1][1]; end == nil || bytes.Compare(end, all[i][0]) > 0 {
			return false
		}
	}
	return true
}

// bounds are the values of all ranges that others do not have.
func bounds(all, others []span) (values [][]byte) {
	have := make(map[string]bool, len(others))
	for _, s := range others {
		have[s.key()] = true
	}
	for _, s := range all {
		if !have[s.key()] {
			values = append(values, s[0], s[1])
		}
	}
	return values
}
