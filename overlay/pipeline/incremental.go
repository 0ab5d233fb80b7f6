package pipeline

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
)

// Compiler compiles one input after the other, and of each only the objects that were
// not in the one before. The zero value has compiled nothing.
type Compiler struct {
	in    objects
	index map[netip.Addr]uint32 // of in's VTEPs
	flows []Flow
	// more says of flows that several objects ask for how many do, but for one; nil: not
	// known, and all is compiled next time.
	more map[flowKey]int
	room []Flow // for the next flows: those of the last input but one
}

// Compile is the function Compile, and says what turns the flows that it returned last
// into these. The caller does not change the input afterwards, and the flows are good until the
// next call.
func (c *Compiler) Compile(input Input) ([]Flow, Changes, error) {
	before := *c
	*c = Compiler{flows: before.flows} // of an input that is refused nothing is returned
	in := objects{Input: input}
	if err := in.validate(); err != nil {
		return nil, Changes{}, fmt.Errorf("compile flows: %w", err)
	}
	if in.Policy.same(before.in.Policy) {
		in.policed, in.members = before.in.policed, before.in.members
	} else {
		if err := in.Policy.validate(); err != nil {
			return nil, Changes{}, fmt.Errorf("compile flows: %w", err)
		}
		in.policed, in.members = in.Policy.objects()
	}
	if before.more != nil {
		if changes, ok := before.follow(in); ok {
			*c = before
			return c.flows, changes, nil
		}
	}
	index := indexes(in)
	flows, more, plain, err := unite(ask(in, index))
	if err != nil {
		return nil, Changes{}, fmt.Errorf("compile flows: %w", err)
	}
	if !plain {
		more = nil
	}
	*c = Compiler{in: in, index: index, flows: flows, more: more}
	return flows, Diff(before.flows, flows), nil
}

// follow goes from the input that c has to the next one, by the objects in which they
// differ. It reports false if all is to be compiled anew, and then c is of no use.
func (c *Compiler) follow(in objects) (changes Changes, ok bool) {
	gone, come, ok := differing(c.in, in)
	if !ok {
		return Changes{}, false
	}
	if gone.empty() && come.empty() && gone.Generation == come.Generation {
		c.in = in
		return Changes{}, true
	}
	index := c.index
	if len(gone.VTEPs)+len(come.VTEPs) > 0 {
		index = indexes(in)
	}
	removed, added := ask(gone, c.index), ask(come, index)
	flows, rest := slices.Grow(c.room[:0], len(c.flows)+len(added)), c.flows
	for len(removed)+len(added) > 0 {
		f := lowest(removed, added)
		less, plus := asking(&removed, f), asking(&added, f)
		i, there := slices.BinarySearchFunc(rest, f, Flow.order)
		flows, rest = append(flows, rest[:i]...), rest[i:]
		var was Flow
		count := -len(less)
		if there {
			was, rest = rest[0], rest[1:]
			count += 1 + c.more[f.key()]
		}
		now := was
		if len(plus) > 0 {
			now = plus[0]
		}
		if isConjunction(now.Actions) {
			if now.Actions, ok = rejoin(was.Actions, less, plus); !ok {
				return Changes{}, false
			}
		} else if count < 0 || count > 0 && now != was || slices.ContainsFunc(plus, func(f Flow) bool { return f != now }) {
			return Changes{}, false // what is wrong, or which cookie counts, is Compile's to say
		}
		count += len(plus)
		switch {
		case count > 0 && !there:
			changes.Add = append(changes.Add, now)
		case count > 0 && now != was:
			changes.modify(was, now)
		case count == 0 && there:
			changes.Delete = append(changes.Delete, was)
		}
		if delete(c.more, f.key()); count > 1 {
			c.more[f.key()] = count - 1
		}
		if count > 0 {
			flows = append(flows, now)
		}
	}
	flows = append(flows, rest...)
	c.in, c.index, c.flows, c.room = in, index, flows, c.flows
	return changes, true
}

// rejoin is the conjunctions of a flow without some and with others, and false if it does not
// come to that.
func rejoin(was string, less, plus []Flow) (string, bool) {
	var parts []string
	if was != "" {
		if !isConjunction(was) {
			return "", false
		}
		parts = split(was)
	}
	for _, f := range less {
		i := slices.Index(parts, f.Actions)
		if i < 0 {
			return "", false
		}
		parts = slices.Delete(parts, i, i+1)
	}
	for _, f := range plus {
		if !isConjunction(f.Actions) {
			return "", false
		}
		parts = append(parts, f.Actions)
	}
	return join(parts), true
}

// empty reports whether there are none.
func (in objects) empty() bool {
	return !slices.ContainsFunc(kinds, func(k kind) bool { return k.count(&in) > 0 })
}

// lowest is the flow that comes first in two lists, of which one may be empty.
func lowest(a, b []Flow) Flow {
	if first(a, b) < 0 {
		return a[0]
	}
	return b[0]
}

// asking takes those with the key of f, which none is below, from the front of a list.
func asking(list *[]Flow, f Flow) (taken []Flow) {
	n := 0
	for n < len(*list) && (*list)[n].order(f) == 0 {
		n++
	}
	taken, *list = (*list)[:n], (*list)[n:]
	return taken
}

// differing returns the two inputs with only those objects whose flows may differ, and
// false if all may.
func differing(a, b objects) (gone, come objects, ok bool) {
	gone, come = a, b
	for _, in := range []*objects{&gone, &come} {
		for _, k := range kinds {
			k.clear(in)
		}
		in.Generation, in.Policy.Classes = 0, nil // classes are their members
	}
	if !reflect.DeepEqual(gone, come) || a.hints() != b.hints() { // who begins no more has flows of his own for what is handed over
		return a, b, false
	}
	gone.Generation, come.Generation = a.Generation, b.Generation
	moved := moved{}
	for i, k := range kinds {
		k.differ(&a, &b, &gone, &come, moved)
		if i > 0 {
			continue
		}
		before, after := indexes(gone), indexes(come)
		for _, v := range slices.Concat(gone.VTEPs, come.VTEPs) {
			if before[v.Addr] != after[v.Addr] {
				moved[v.Addr] = true
			}
		}
	}
	return gone, come, true
}

func itself[T any](v T) T            { return v }
func same[T comparable](a, b T) bool { return a == b }
func (v VTEP) equal(o VTEP) bool {
	return v.Addr == o.Addr && v.Index == o.Index && v.Secure == o.Secure && v.Beside == o.Beside && slices.Equal(v.Host, o.Host)
}

func (p Port) equal(o Port) bool {
	return p.OFPort == o.OFPort && slices.Equal(p.MAC, o.MAC) && slices.Equal(p.Addrs, o.Addrs) && slices.Equal(p.LinkLocal, o.LinkLocal) &&
		p.VNID == o.VNID && p.Realm == o.Realm && p.Internal == o.Internal && p.Encrypted == o.Encrypted && p.Multicast == o.Multicast && p.Endpoint == o.Endpoint && p.Plain == o.Plain && p.Guarded == o.Guarded && p.Rejects == o.Rejects && p.Bare == o.Bare
}

func (g Guard) equal(o Guard) bool {
	return g.Endpoint == o.Endpoint && slices.Equal(g.Addrs, o.Addrs) && slices.Equal(g.LinkLocal, o.LinkLocal) && g.VNID == o.VNID &&
		g.Ingress == o.Ingress && g.Egress == o.Egress && g.Young == o.Young && g.Named == o.Named && g.IngressEpoch == o.IngressEpoch && g.EgressEpoch == o.EgressEpoch
}

// equal leaves out the label, which is in no flow.
func (r PolicyRule) equal(o PolicyRule) bool {
	return r.ID == o.ID && r.Slot == o.Slot && r.Direction == o.Direction && r.Priority == o.Priority && r.Action == o.Action && slices.Equal(r.Subjects, o.Subjects) &&
		r.AnyPeer == o.AnyPeer && slices.Equal(r.Peers, o.Peers) && slices.Equal(r.Blocks, o.Blocks) && r.AnyPort == o.AnyPort && slices.Equal(r.Ports, o.Ports)
}

type openingKey struct {
	priority int
	from, to netip.Addr
	past     bool
}

func (o Opening) key() openingKey { return openingKey{o.Priority, o.From, o.To, o.Past} }

func (o Opening) equal(p Opening) bool {
	return o.Rule == p.Rule && o.Priority == p.Priority && o.Action == p.Action && o.From == p.From && o.To == p.To && o.Past == p.Past && o.Named == p.Named && o.AnyPort == p.AnyPort && slices.Equal(o.Ports, p.Ports)
}

// unlike returns what of two lists has no equal in the other one. id is what equal
// objects have in common; most lists are the same but for a few objects.
func unlike[T any, K comparable](a, b []T, id func(T) K, equal func(T, T) bool) (gone, come []T) {
	for len(a) > 0 && len(b) > 0 && equal(a[0], b[0]) {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && equal(a[len(a)-1], b[len(b)-1]) {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	if len(a) == len(b) { // objects in the same places, most of them
		var x, y []T
		for i := range a {
			if !equal(a[i], b[i]) {
				x, y = append(x, a[i]), append(y, b[i])
			}
		}
		a, b = x, y
	}
	left := make(map[K]T, len(a))
	for _, v := range a {
		if _, twice := left[id(v)]; twice {
			gone = append(gone, v)
			continue
		}
		left[id(v)] = v
	}
	for _, v := range b {
		if o, ok := left[id(v)]; ok && equal(o, v) {
			delete(left, id(v))
			continue
		}
		come = append(come, v)
	}
	for _, v := range a {
		if _, ok := left[id(v)]; ok {
			delete(left, id(v))
			gone = append(gone, v)
		}
	}
	return gone, come
}
