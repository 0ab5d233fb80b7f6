package cluster

import (
	"slices"
	"testing"
)

// TestRealms: networks are one if a word says so that is about these very networks, and no other.
func TestRealms(t *testing.T) {
	s := New(id(1))
	networks := map[string]Network{}
	for _, n := range []Network{{Name: "a", VNID: 1, Made: "x"}, {Name: "b", VNID: 2, Made: "y"}, {Name: "c", VNID: 3}, {Name: "d", VNID: 4}, {Name: "zero"}} {
		put(t, s, n)
		networks[n.Name] = n
	}
	say := func(network, with string, global bool) {
		n := networks[network]
		put(t, s, Realm{Network: n.Name, VNID: n.VNID, Made: n.Made, With: with, Global: global})
	}
	check := func(what string, pairs ...string) {
		t.Helper()
		all := s.Snapshot().Realms()
		for _, a := range networks {
			for _, b := range networks {
				want := a.Name == b.Name || a.VNID == 0 || b.VNID == 0 || slices.Contains(pairs, a.Name+b.Name) || slices.Contains(pairs, b.Name+a.Name)
				if got := all.Meet(a, b); got != want {
					t.Errorf("%s: %s and %s: %v, want %v", what, a.Name, b.Name, got, want)
				}
			}
		}
	}
	check("at first")
	say("a", "1", false)
	if check("half a word"); len(s.Snapshot().Realms()) != 0 {
		t.Error("a network that is with nothing is said to be")
	}
	say("b", "1", false)
	say("c", "2", false)
	say("zero", "1", false) // it reaches all anyway
	check("two", "ab")
	if with := s.Snapshot().Realms().With("a"); !slices.Equal(with, []string{"b"}) {
		t.Errorf("a is with %q", with)
	}
	say("d", "", true)
	check("one of them global", "ab", "ad", "bd", "cd")
	say("d", "", false)
	say("c", "1", false)
	check("three", "ab", "ac", "bc")

	made := networks["b"]
	made.Made = "z"
	networks["b"] = made
	put(t, s, made)
	check("one was made anew", "ac")
	other := networks["c"]
	other.VNID = 9
	networks["c"] = other
	put(t, s, other)
	check("one has another VNID")
}

// TestLostRealm: of two words at the same time that which is lost is told, be it the one that parts or the one that joins.
func TestLostRealm(t *testing.T) {
	for _, parts := range []bool{false, true} {
		a, b := New(id(1)), New(id(2))
		net := put(t, a, Network{Name: "blue", VNID: 5})
		if _, err := b.Merge([]Record{net}); err != nil {
			t.Fatal(err)
		}
		first := put(t, a, Realm{Network: "blue", VNID: 5, With: "1"}.Over(a.Snapshot()))
		if m, err := b.Merge([]Record{first}); err != nil || len(m.Lost) != 0 {
			t.Fatalf("%v, lost %v", err, m.Lost)
		}
		one := Realm{Network: "blue", VNID: 5, With: "2"}
		two := Realm{Network: "blue", VNID: 5}
		if parts {
			one, two = two, one
		}
		mine, theirs := put(t, a, one.Over(a.Snapshot())), put(t, b, two.Over(b.Snapshot()))
		m, err := a.Merge([]Record{theirs})
		n, err2 := b.Merge([]Record{mine})
		if err != nil || err2 != nil || len(m.Lost) != 1 || len(n.Lost) != 1 {
			t.Fatalf("%v, %v: told are %v and %v", err, err2, m.Lost, n.Lost)
		}
		// Who knows of both says it over both.
		c := put(t, a, Realm{Network: "blue", VNID: 5, Global: true}.Over(a.Snapshot(), m.Lost[0].Edit.Version))
		if m, err := b.Merge([]Record{c}); err != nil || len(m.Lost) != 0 {
			t.Errorf("%v, lost %v", err, m.Lost)
		}
	}
}
