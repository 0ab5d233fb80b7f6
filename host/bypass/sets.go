package bypass

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/nft"
)

// volatile are the flags of sets that change, or are more, than this package sees: elements that end by themselves or are
// added by packets, ranges of several fields, elements with limits and objects.
const volatile = unix.NFT_SET_TIMEOUT | unix.NFT_SET_EVAL | unix.NFT_SET_OBJECT | setConcat | setExpr

// Flags that package unix does not have (linux/netfilter/nf_tables.h).
const (
	setConcat   = 0x80  // NFT_SET_CONCAT
	setExpr     = 0x100 // NFT_SET_EXPR
	intervalEnd = 1     // NFT_SET_ELEM_INTERVAL_END
	catchall    = 2     // NFT_SET_ELEM_CATCHALL
)

// lookup is a test whether a value is in a set. One that is in a map gets another value, of which nothing is known.
func (w *way) lookup(e nft.Step) (answer, error) {
	set, key := w.asked(e)
	if set == nil || set.Flags&(setExpr|unix.NFT_SET_EVAL) != 0 {
		return maybe, errUnclear
	}
	_, is := find(set, key)
	if nft.Attribute(e.Attrs, unix.NFTA_LOOKUP_DREG) != nil {
		w.reg.lose(e.Attrs, unix.NFTA_LOOKUP_DREG, ofAll)
	}
	if be(nft.Attribute(e.Attrs, unix.NFTA_LOOKUP_FLAGS))&1 != 0 { // NFT_LOOKUP_F_INV
		is = is.not()
	}
	return is, nil
}

var errUnclear = errors.New("looks in a set that the agent does not understand for")

func (w *way) asked(e nft.Step) (*nft.Values, bits) {
	set := w.table.Sets[text(nft.Attribute(e.Attrs, unix.NFTA_LOOKUP_SET))]
	if set == nil {
		return nil, bits{}
	}
	return set, w.reg.get(be(nft.Attribute(e.Attrs, unix.NFTA_LOOKUP_SREG)), set.Length)
}

// verdictMap is a lookup that tells where the packet goes.
func (w *way) verdictMap(e nft.Step, surely bool) (next, error) {
	set, key := w.asked(e)
	if set == nil || set.Flags&(setExpr|unix.NFT_SET_EVAL) != 0 {
		return 0, hedged(errUnclear, surely)
	}
	leadsTo := func(i int, sure bool) (next, error) {
		return w.verdict(nft.Attribute(set.Elements[i].Data, unix.NFTA_DATA_VERDICT), sure)
	}
	i, is := find(set, key)
	switch {
	case is == no:
		return goesOn, nil
	case is == yes:
		return leadsTo(i, surely)
	}
	may := goesOn                 // it may be none of them
	for i := range set.Elements { // any of them
		if set.Elements[i].Flags&intervalEnd != 0 {
			continue
		}
		result, err := leadsTo(i, false)
		if err != nil {
			return 0, err
		}
		may |= result
	}
	return may, nil
}

// find is the element that a value is, or lies in.
func find(s *nft.Values, key bits) (int, answer) {
	if s.Noted || s.Flags&volatile != 0 || slices.ContainsFunc(s.Elements, func(e nft.Element) bool { return e.Odd || e.Flags&catchall != 0 || len(e.Key) != s.Length }) {
		return 0, maybe
	}
	if s.Flags&unix.NFT_SET_INTERVAL != 0 {
		return findInterval(s.Elements, key)
	}
	may := no
	for i, e := range s.Elements {
		switch key.is(e.Key) {
		case yes:
			return i, yes
		case maybe:
			may = maybe
		}
	}
	return 0, may
}

// findInterval looks among beginnings and ends of intervals: what counts is the last one that is not above a value.
func findInterval(elements []nft.Element, key bits) (int, answer) {
	order := make([]int, len(elements))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { // the end of one is the beginning of the next
		return cmp.Or(bytes.Compare(elements[a].Key, elements[b].Key), cmp.Compare(elements[b].Flags&intervalEnd, elements[a].Flags&intervalEnd))
	})
	least, most := key.bounds()
	under := func(v []byte) int {
		n, _ := slices.BinarySearchFunc(order, v, func(i int, v []byte) int {
			if bytes.Compare(elements[i].Key, v) <= 0 {
				return -1
			}
			return 1
		})
		return n - 1
	}
	low, high := under(least), under(most)
	switch {
	case low != high:
		return 0, maybe
	case low < 0 || elements[order[low]].Flags&intervalEnd != 0:
		return 0, no
	}
	return order[low], yes
}
