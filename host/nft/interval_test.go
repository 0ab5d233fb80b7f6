package nft

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// intervals is a table with an interval set of these prefixes, and a rule that asks it.
func intervals(prefixes ...string) Table {
	s := Set{Name: "s", Type: TypeIPv4, Length: 4, Interval: true}
	for _, text := range prefixes {
		p := netip.MustParsePrefix(text)
		last := p.Addr().As4()
		for i := p.Bits(); i < 32; i++ {
			last[i/8] |= 0x80 >> (i % 8)
		}
		var end []byte
		if next := netip.AddrFrom4(last).Next(); next.IsValid() {
			end = Bytes(next)
		}
		s.Values = append(s.Values, Bytes(p.Addr()), end)
	}
	return Table{Name: "t", Family: Inet, Sets: []Set{s}, Chains: []Chain{{
		Name: "c", Type: "filter", Hook: unix.NF_INET_FORWARD, Rules: []Rule{{Exprs: []Expr{Meta(unix.NFT_META_NFPROTO), Equal([]byte{unix.NFPROTO_IPV4}), Addr(false, false), In("s", false), Counter(), Drop()}}},
	}}}
}

// TestChangeIntervals: the kernel has the same after changes as of a table that was made so, also of ranges side by side
// and up to the last address. Ranges in ranges are not changed.
func TestChangeIntervals(t *testing.T) {
	linktest.New(t).Do(func() {
		c, err := Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		has := func() []string {
			list, err := c.elements(Inet, "t", "s")
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for _, e := range list {
				out = append(out, fmt.Sprint(e.Key, e.Flags&unix.NFT_SET_ELEM_INTERVAL_END))
			}
			slices.Sort(out)
			return slices.DeleteFunc(out, func(s string) bool { return s == "[0 0 0 0] 1" }) // how the kernel has that nothing is before the first
		}
		pool := []string{"10.2.0.0/16", "255.255.255.255/32"}
		for i := range 12 {
			pool = append(pool, fmt.Sprintf("10.1.0.%d/32", i))
		}
		now := intervals(pool[0])
		if err := c.Do(now.Anew()); err != nil {
			t.Fatal(err)
		}
		rules, err := c.Handles(now)
		if err != nil || len(rules) != 1 {
			t.Fatalf("rules %v, %v", rules, err)
		}
		for range 50 {
			var some []string
			for _, p := range pool {
				if rand.IntN(2) == 0 {
					some = append(some, p)
				}
			}
			next := intervals(some...)
			batch, ok := now.Change(next)
			if !ok {
				t.Fatalf("%v cannot be changed into %v", now.Sets[0].Values, some)
			}
			if len(batch) > 0 {
				if err := c.Do(batch); err != nil {
					t.Fatalf("into %v: %v", some, err)
				}
			}
			changed := has()
			if list, err := c.Handles(next); err != nil || !slices.Equal(list, rules) {
				t.Fatalf("the rules are others: %v, before %v (%v)", list, rules, err)
			}
			if err := c.Do(next.Anew()); err != nil {
				t.Fatal(err)
			}
			if rules, err = c.Handles(next); err != nil {
				t.Fatal(err)
			}
			if made := has(); !slices.Equal(changed, made) {
				t.Fatalf("changed into %v the kernel has %v, and made so %v", some, changed, made)
			}
			now = next
		}
	})
	for _, c := range [][2]string{{"10.1.0.0/24", "10.1.0.7/32"}, {"0.0.0.0/0", "255.255.255.255/32"}, {"10.1.0.0/24", "10.1.0.0/25"}} {
		for _, way := range [][2]string{{c[0], c[1]}, {c[1], c[0]}} {
			if _, ok := intervals(way[0]).Change(intervals(way[1])); ok {
				t.Errorf("%s is changed into %s, one in the other", way[0], way[1])
			}
		}
	}
}

// TestChangeSeesRules: a table of the same rules is changed by values of sets alone; where anything of a chain or a rule
// differs, the table is made anew.
func TestChangeSeesRules(t *testing.T) {
	rules := func() Table {
		return Table{Name: "t", Family: Inet, Chains: []Chain{{
			Name: "c", Type: "filter", Hook: unix.NF_INET_FORWARD, Priority: 1,
			Rules: []Rule{{Comment: "for people", Exprs: []Expr{Meta(unix.NFT_META_IIFNAME), Equal(Name("gv0")), Drop()}}},
		}}}
	}
	if batch, ok := rules().Change(rules()); !ok || len(batch) > 0 {
		t.Errorf("to the same: %d messages, %v", len(batch), ok)
	}
	differ := func(what string, other Table) {
		if _, ok := rules().Change(other); ok {
			t.Errorf("another %s makes no difference", what)
		}
	}
	for _, of := range []func(*Table) any{
		func(t *Table) any { return &t.Chains[0] }, func(t *Table) any { return &t.Chains[0].Rules[0] },
	} {
		for i := range reflect.ValueOf(of(&Table{Chains: []Chain{{Rules: []Rule{{}}}}})).Elem().NumField() {
			other := rules()
			v := reflect.ValueOf(of(&other)).Elem()
			v.Field(i).SetZero()
			differ(v.Type().Name()+"."+v.Type().Field(i).Name, other)
		}
	}
	for i, e := range []Expr{Meta(unix.NFT_META_OIFNAME), Equal(Name("gv1")), Accept()} {
		other := rules()
		other.Chains[0].Rules[0].Exprs[i] = e
		differ("expression", other)
	}
}
