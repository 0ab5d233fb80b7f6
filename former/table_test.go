package former

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func labelled(id, app string, addrs ...string) cluster.Endpoint {
	e := cluster.Endpoint{ID: id, Network: "blue", Host: "a", Labelled: true, Labels: map[string]string{"app": app}}
	for _, a := range addrs {
		e.Addrs = append(e.Addrs, addr(a))
	}
	return e
}

func single(a string) netip.Prefix { return netip.PrefixFrom(addr(a), addr(a).BitLen()) }

// TestNeeds: who has an address that another one had waits for all hosts to have heard, unless the two are the same to policies.
func TestNeeds(t *testing.T) {
	tab := newTable()
	needs := func(e cluster.Endpoint, want uint64) {
		t.Helper()
		if got := tab.needs(e)["a"]; got != want {
			t.Errorf("%s of %v needs %d, want %d", e.ID, e.Addrs, got, want)
		}
	}
	needs(labelled("x", "bad", "10.77.0.9"), 0)
	web := labelled("w", "web", "10.77.0.9", "fd77::9")
	for _, a := range web.Addrs {
		tab.put(Entry{Block: netip.PrefixFrom(a, a.BitLen()), By: "a", Counter: 7, Had: []Had{{print(web), "w"}}})
	}
	needs(labelled("x", "bad", "10.77.0.9"), 7)
	needs(labelled("x", "bad", "fd77::9"), 7)
	needs(labelled("x", "bad", "10.77.0.8"), 0)
	needs(labelled("x", "web", "10.77.0.9"), 0)
	unknown := labelled("x", "web", "10.77.0.9")
	unknown.Labelled = false
	needs(unknown, 7)
	elsewhere := labelled("x", "web", "10.77.0.9")
	elsewhere.Network = "red"
	needs(elsewhere, 7)

	// The first of two former ones was another one: hosts may still take the address for its.
	app := labelled("p", "app", "10.77.0.9")
	tab.put(Entry{Block: single("10.77.0.9"), By: "a", Counter: 9, Had: []Had{{print(app), "p"}}})
	needs(labelled("x", "app", "10.77.0.9"), 9)
	needs(labelled("x", "web", "10.77.0.9"), 9)

	// Its own former labels are its own.
	tab.put(Entry{Block: single("10.77.0.7"), By: "a", Counter: 11, Had: []Had{{print(labelled("x", "old")), "x"}}})
	needs(labelled("x", "new", "10.77.0.7"), 0)
	needs(labelled("y", "new", "10.77.0.7"), 11)

	// What came with a block is about all of it, whoever it was.
	tab.put(Entry{Block: netip.MustParsePrefix("10.77.1.0/24"), By: "c", Counter: 5, Any: true})
	if n := tab.needs(labelled("x", "web", "10.77.1.4", "10.77.0.9")); n["c"] != 5 || n["a"] != 9 {
		t.Errorf("of two writers: %v", n)
	}

	heard := marks{"a": 9}
	if heard.met(marks{"a": 9, "c": 5}) || !heard.raise(marks{"c": 6, "a": 3}) || !heard.met(marks{"a": 9, "c": 5}) || heard["a"] != 9 {
		t.Errorf("heard %v", heard)
	}
	if gone := tab.forget(marks{"a": 9}); len(gone) != 2 {
		t.Errorf("forgotten %v", gone)
	}
	needs(labelled("x", "bad", "10.77.0.9"), 0)
	needs(labelled("y", "new", "10.77.0.7"), 11)
}

// TestPrint: all that policies can ask for makes another one.
func TestPrint(t *testing.T) {
	seen := map[uint64]string{}
	for name, change := range map[string]func(*cluster.Endpoint){
		"itself": func(*cluster.Endpoint) {}, "label": func(e *cluster.Endpoint) { e.Labels = map[string]string{"app": "y"} }, "more": func(e *cluster.Endpoint) { e.Labels = map[string]string{"app": "x", "b": "c"} },
		"network": func(e *cluster.Endpoint) { e.Network = "red" }, "host": func(e *cluster.Endpoint) { e.Host = "b" }, "client": func(e *cluster.Endpoint) { e.Client = []byte{1} },
		"unknown": func(e *cluster.Endpoint) { e.Labelled = false },
	} {
		e := labelled("w", "x", "10.77.0.9")
		change(&e)
		if other, there := seen[print(e)]; there {
			t.Errorf("%s is %s", name, other)
		}
		seen[print(e)] = name
	}
	a, b := labelled("w", "x", "10.77.0.9"), labelled("v", "x", "10.77.0.8")
	b.MAC, b.Name, b.Unready = "02:42:00:00:00:01", "v", true
	if print(a) != print(b) {
		t.Error("what no policy asks for makes another one")
	}
}

// TestBound: of too many the oldest become one that is about all addresses. Nothing is less strict by that, and who has an address
// already waits for no more than before.
func TestBound(t *testing.T) {
	at := func(i uint64) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, byte(i >> 8), byte(i)}) }
	tab := newTable()
	n := uint64(0)
	more := func(to uint64) {
		for ; n < to; n++ {
			tab.put(Entry{Block: netip.PrefixFrom(at(n), 32), By: "a", Counter: n + 1, Had: []Had{{1, fmt.Sprint(n)}}})
		}
	}
	more(maxEntries + 1)
	old, heir, next := addr("10.76.0.1"), at(3), addr("10.76.0.2")
	put, gone := tab.bound([]netip.Addr{old, heir})
	if len(put) == 0 || len(gone) != folded || len(tab.entries) > maxEntries-folded+2 {
		t.Errorf("%d put, %d gone, %d left", len(put), len(gone), len(tab.entries))
	}
	if again, _ := tab.bound(nil); again != nil {
		t.Error("it is bound again")
	}
	check := func(when string, want map[netip.Addr]uint64) {
		t.Helper()
		for a, counter := range want {
			if got := tab.needs(labelled("x", "bad", a.String()))["a"]; got != counter {
				t.Errorf("%s: %s needs %d, want %d", when, a, got, counter)
			}
		}
		for i := range n {
			if need := tab.needs(labelled("x", "bad", at(i).String())); need["a"] < i+1 {
				t.Fatalf("%s: %s needs %v, want %d", when, at(i), need, i+1)
			}
		}
		if need := tab.needs(labelled("x", "bad", "fd77::9")); need != nil {
			t.Errorf("%s: an address of the other family needs %v", when, need)
		}
	}
	check("once", map[netip.Addr]uint64{old: 0, heir: 4, next: folded + 1})

	// The one that began since then goes on waiting for what it waited for, and for no more; what is written to the disk is the same.
	more(maxEntries + folded + 1)
	put, _ = tab.bound([]netip.Addr{old, heir, next})
	check("twice", map[netip.Addr]uint64{old: 0, heir: 4, next: folded + 1})
	for _, e := range put {
		if e.Block.IsSingleIP() && e.Block.Addr() != next {
			t.Errorf("put %v", e)
		}
	}
	// One that goes is of those that may have been anybody.
	more(maxEntries + 2*folded + 2)
	tab.bound([]netip.Addr{heir})
	if need := tab.needs(labelled("x", "bad", old.String())); need["a"] < 2*folded {
		t.Errorf("once nobody has it, %s needs %v", old, need)
	}
	check("thrice", map[netip.Addr]uint64{heir: 4})
}

// TestMany: an entry that too many have had is anybody's.
func TestMany(t *testing.T) {
	tab := newTable()
	for i := range uint64(maxHad + 1) {
		tab.put(Entry{Block: single("10.77.0.9"), By: "a", Counter: i, Had: []Had{{i + 100, fmt.Sprint(i)}}})
	}
	e := tab.put(Entry{Block: single("10.77.0.9"), By: "a", Counter: 3, Had: []Had{{100, "0"}}})
	if !e.Any || e.Had != nil || e.Counter != maxHad {
		t.Errorf("%+v", e)
	}
}

// TestWithin: what goes with a block is what is known of it, and of many addresses it is said once.
func TestWithin(t *testing.T) {
	tab := newTable()
	for i := range 70 {
		a := netip.AddrFrom4([4]byte{10, 77, 0, byte(i)})
		tab.put(Entry{Block: netip.PrefixFrom(a, 32), By: "a", Counter: uint64(i + 1), Had: []Had{{1, "w"}}})
	}
	if list := tab.within(netip.MustParsePrefix("10.77.1.0/24"), 64); list != nil {
		t.Errorf("of another block: %v", list)
	}
	if list := tab.within(netip.MustParsePrefix("10.77.0.0/26"), 64); len(list) != 64 || !list[0].Any || list[0].Had != nil {
		t.Errorf("%d entries of a /26, %+v", len(list), list[0])
	}
	block := netip.MustParsePrefix("10.77.0.0/24")
	if list := tab.within(block, 64); len(list) != 1 || list[0].Block != block || list[0].Counter != 70 {
		t.Errorf("of a /24: %v", list)
	}
	tab.put(Entry{Block: netip.MustParsePrefix("0.0.0.0/0"), By: "b", Counter: 4, Any: true})
	if list := tab.within(netip.MustParsePrefix("10.99.0.0/24"), 64); len(list) != 1 || list[0].Block != netip.MustParsePrefix("10.99.0.0/24") || list[0].By != "b" {
		t.Errorf("of what is about all addresses: %v", list)
	}
}
