package former

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/cluster"
)

// Entry says that containers had addresses of a block, until a write.
type Entry struct {
	Block   netip.Prefix   // mostly one address
	By      cluster.NodeID // who wrote that the last of them let go of it
	Counter uint64         // of that write
	// Had says which containers, unless Any says that more is not known.
	Had []Had
	Any bool
	// But are addresses of the block that it is not about: whoever has them had them already (bound).
	But []netip.Addr `cbor:",omitempty"`
}

// Had is a container, as policies knew it (print), and the beginning of its endpoint's ID.
type Had struct {
	Print    uint64
	Endpoint string
}

// short is enough of an ID: there are many.
func short(id string) string { return strings.Clone(id[:min(16, len(id))]) }

const (
	maxHad     = 8     // of an entry: beyond that it may have been anybody
	maxEntries = 32768 // beyond that the oldest become one entry of all addresses
	folded     = 4096  // at once
)

// print is what policies can ask for of an endpoint; 0: nothing, since its labels are not known, and nothing is let through by those.
func print(e cluster.Endpoint) uint64 {
	if !e.Labelled {
		return 0
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%q %q %t %q", e.Network, e.Host, e.IsClient(), e.Made)
	for _, k := range slices.Sorted(maps.Keys(e.Labels)) {
		fmt.Fprintf(h, " %q=%q", k, e.Labels[k])
	}
	return max(h.Sum64(), 1)
}

// key is an entry's own.
type key struct {
	block netip.Prefix
	by    cluster.NodeID
}

func (e Entry) key() key { return key{e.Block, e.By} }

// name is its name in the file.
func (k key) name() string { return k.block.String() + " " + string(k.by) }

// table is what is known of addresses that containers had.
type table struct {
	entries map[key]Entry
	wide    map[key]bool // those of blocks of more than one address
	single  map[netip.Addr][]key
}

func newTable() *table {
	return &table{map[key]Entry{}, map[key]bool{}, map[netip.Addr][]key{}}
}

// put adds an entry to what is known of its block, and returns the whole.
func (t *table) put(e Entry) Entry {
	k := e.key()
	if was, there := t.entries[k]; there {
		e.Counter, e.Any = max(e.Counter, was.Counter), e.Any || was.Any
		e.But = slices.DeleteFunc(slices.Clone(e.But), func(a netip.Addr) bool { return !slices.Contains(was.But, a) })
		for _, h := range was.Had {
			if !slices.Contains(e.Had, h) {
				e.Had = append(slices.Clip(e.Had), h)
			}
		}
	} else if e.Block.IsSingleIP() {
		t.single[e.Block.Addr()] = append(t.single[e.Block.Addr()], k)
	} else {
		t.wide[k] = true
	}
	if e.Any || len(e.Had) > maxHad {
		e.Had, e.Any = nil, true
	}
	t.entries[k] = e
	return e
}

func (t *table) drop(k key) {
	delete(t.entries, k)
	delete(t.wide, k)
	a := k.block.Addr()
	t.single[a] = slices.DeleteFunc(slices.Clone(t.single[a]), func(o key) bool { return o == k })
	if len(t.single[a]) == 0 {
		delete(t.single, a)
	}
}

// about are the entries of an address.
func (t *table) about(a netip.Addr) (list []Entry) {
	for _, k := range t.single[a] {
		list = append(list, t.entries[k])
	}
	for k := range t.wide {
		if e := t.entries[k]; k.block.Contains(a) && !slices.Contains(e.But, a) {
			list = append(list, e)
		}
	}
	return list
}

// latest are the last writes of the entries, of each writer.
func (t *table) latest() marks {
	m := marks{}
	for _, e := range t.entries {
		m[e.By] = max(m[e.By], e.Counter)
	}
	return m
}

// marks say for each writer how many of its writes have been heard of, as a cluster.Digest does.
type marks map[cluster.NodeID]uint64

// needs is what a host is to have heard before it talks with an endpoint; nil: nothing, since nobody else had its addresses.
func (t *table) needs(e cluster.Endpoint) (need marks) {
	if len(t.entries) == 0 {
		return nil
	}
	now, id := print(e), short(e.ID)
	for _, a := range e.Addrs {
		for _, f := range t.about(a.Unmap().WithZone("")) {
			if f.Any || slices.ContainsFunc(f.Had, func(h Had) bool { return h.Endpoint != id && h.Print != now }) {
				if need == nil {
					need = marks{}
				}
				need[f.By] = max(need[f.By], f.Counter)
			}
		}
	}
	return need
}

// met reports whether all that is needed has been heard.
func (m marks) met(need marks) bool {
	for by, counter := range need {
		if m[by] < counter {
			return false
		}
	}
	return true
}

// raise adds what has been heard, and reports whether that is more.
func (m marks) raise(more marks) (raised bool) {
	for by, counter := range more {
		if m[by] < counter {
			m[by], raised = counter, true
		}
	}
	return raised
}

// forget drops the entries of which all hosts have heard.
func (t *table) forget(heard marks) (gone []key) {
	if len(heard) == 0 {
		return nil
	}
	for k, e := range t.entries {
		if heard[e.By] >= e.Counter {
			gone = append(gone, k)
		}
	}
	for _, k := range gone {
		t.drop(k)
	}
	return gone
}

// all are the blocks of all addresses of a family.
var all = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}

// bound makes of the oldest entries, if there are too many, entries that are about all addresses, but for those that somebody has just
// now: of these, which are living, as much is known as before.
func (t *table) bound(living []netip.Addr) (put []Entry, gone []key) {
	if len(t.entries) <= maxEntries {
		return nil, nil
	}
	lives := make(map[netip.Addr]bool, len(living))
	changed := map[key]bool{}
	for _, a := range living {
		lives[a] = true
		for _, e := range t.about(a) {
			if !e.Block.IsSingleIP() {
				one := Entry{Block: netip.PrefixFrom(a, a.BitLen()), By: e.By, Counter: e.Counter, Any: true}
				t.put(one)
				changed[one.key()] = true
			}
		}
	}
	var list []Entry
	for _, e := range t.entries {
		if !slices.Contains(all, e.Block) && !(e.Block.IsSingleIP() && lives[e.Block.Addr()]) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b Entry) int { return cmp.Compare(a.Counter, b.Counter) })
	for _, e := range list[:min(folded, len(list))] {
		gone = append(gone, e.key())
		t.drop(e.key())
		for _, block := range all {
			if block.Addr().Is4() != e.Block.Addr().Is4() {
				continue
			}
			whole := Entry{Block: block, By: e.By, Counter: e.Counter, Any: true}
			k := whole.key()
			whole.Counter = max(whole.Counter, t.entries[k].Counter)
			if !changed[k] {
				whole.But = slices.DeleteFunc(slices.Clone(living), func(a netip.Addr) bool { return !block.Contains(a) })
				changed[k] = true
			} else {
				whole.But = t.entries[k].But
			}
			t.entries[k], t.wide[k] = whole, true
		}
	}
	for k := range changed {
		put = append(put, t.entries[k])
	}
	return put, gone
}

// within are the entries about addresses of a block, for whoever gets it: of no more than so many blocks.
func (t *table) within(block netip.Prefix, most int) (list []Entry) {
	for k, e := range t.entries {
		if !k.block.Overlaps(block) {
			continue
		}
		if k.block.Bits() < block.Bits() {
			e.Block = block
		}
		e.Had, e.Any, e.But = nil, true, nil
		list = append(list, e)
	}
	if len(list) <= most {
		return list
	}
	latest := marks{}
	for _, e := range list {
		latest[e.By] = max(latest[e.By], e.Counter)
	}
	list = nil
	for by, counter := range latest {
		list = append(list, Entry{Block: block, By: by, Counter: counter, Any: true})
	}
	return list
}
