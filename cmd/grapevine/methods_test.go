package main

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// mostMethods is how many methods a type may have: its own, those of what it embeds, the functions of its package that take a pointer
// to it first, which are methods by another spelling, and those of types that hold nothing but such a pointer. A type with more is
// several that share a lock: each of them gets a type, its part of the state, and a name.
const mostMethods = 40

// manyOthers are types of which more functions make use than do their work: by such a function, how many there may be, and why it is
// no part of the type's own. Their own methods are bounded as all others' are.
var manyOthers = map[string]struct {
	most int
	why  string
}{
	"overlay/pipeline/compiler": {43, "it is a list of flows that grows: each stage is a function that adds to it, and reads the input alone"},
	"cluster/Snapshot":          {17, "it never changes: a function that reads one can disturb no other"},
	"api/Client":                {26, "it is one connection: the calls of a verb have a type of their own, without state"},
	"gossip/Gossip":             {13, "memberlist takes four interfaces, and each is answered by a type of its own"},
	"overlay/fastpath/Path":     {38, "Headerless, Inside and Secure are its parts by name: programs at other hooks, which share its maps and so its lock. It is the one type here that is too large by its state"},
	"tests/bench/bench":         {15, "each is a measurement, or a part of one"},
}

// TestMethods: no type does everything.
func TestMethods(t *testing.T) {
	pkgs := sources(t)
	for typ, by := range manyOthers {
		dir, name := path.Split(typ)
		if n := len(pkgs[path.Clean(dir)].inOtherWords(name)); n > by.most || n < by.most-3 {
			t.Errorf("of %s %d functions make use, and it is said to be %d", typ, n, by.most)
		}
	}
	for dir, s := range pkgs {
		for name := range s.types {
			all := methodsOf(pkgs, dir, name, nil)
			if _, others := manyOthers[path.Join(dir, name)]; !others {
				for _, more := range s.inOtherWords(name) {
					all[more] = true
				}
			}
			if n := len(all); n > mostMethods {
				t.Errorf("%s has %d methods, and may have %d: give some of what it does to a type of their own", path.Join(dir, name), n, mostMethods)
			}
		}
	}
}

// inOtherWords are what does a type's work without being its method: functions that take a pointer to it first, and the methods of
// types that hold it alone.
func (s source) inOtherWords(name string) (more []string) {
	for f, is := range s.funcs {
		of, _, method := strings.Cut(f, ".")
		switch {
		case !method && len(is.Params.List) > 0 && text(is.Params.List[0].Type) == "*"+name:
			more = append(more, "func "+f)
		case method && s.holds[of] == "*"+name:
			more = append(more, f)
		}
	}
	return more
}

// methodsOf are the methods of a type, with those of types of this module that it embeds.
func methodsOf(pkgs map[string]source, dir, name string, seen []string) map[string]bool {
	out, typ := map[string]bool{}, path.Join(dir, name)
	if slices.Contains(seen, typ) {
		return out
	}
	for f := range pkgs[dir].funcs {
		if of, method, ok := strings.Cut(f, "."); ok && of == name {
			out[method] = true
		}
	}
	for _, m := range pkgs[dir].methods[name] {
		out[m] = true
	}
	for _, e := range pkgs[dir].types[name] {
		room, other, foreign := strings.Cut(e, ".")
		if !foreign {
			room, other = dir, e
		} else {
			room = pkgs[dir].imports[room]
		}
		for m := range methodsOf(pkgs, room, other, append(seen, typ)) {
			out[m] = true
		}
	}
	return out
}
