package main

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// mostMethods is how many methods a type may have, its own and those of what it embeds. A type with more is
// several that share a lock: each of them gets a type, its part of the state, and a name.
const mostMethods = 40

// TestMethods: no type does everything.
func TestMethods(t *testing.T) {
	pkgs := sources(t)
	for dir, s := range pkgs {
		for name := range s.types {
			if n := len(methodsOf(pkgs, dir, name, nil)); n > mostMethods {
				t.Errorf("%s has %d methods, and may have %d: give some of what it does to a type of their own", path.Join(dir, name), n, mostMethods)
			}
		}
	}
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
