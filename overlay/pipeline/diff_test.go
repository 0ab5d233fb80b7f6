package pipeline

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func genFlows() *rapid.Generator[[]Flow] {
	flow := rapid.Custom(func(t *rapid.T) Flow {
		return Flow{
			Table: rapid.Uint8Range(0, 2).Draw(t, "table"), Priority: rapid.Uint16Range(0, 2).Draw(t, "priority"),
			Cookie:  rapid.Uint64Range(0, 1).Draw(t, "cookie"),
			Match:   rapid.SampledFrom([]string{"", "ip", "arp", "ip,in_port=1"}).Draw(t, "match"),
			Actions: rapid.SampledFrom([]string{"drop", "goto_table:10"}).Draw(t, "actions"),
		}
	})
	return rapid.Custom(func(t *rapid.T) []Flow {
		return rapid.SliceOfDistinct(flow, Flow.key).Draw(t, "flows")
	})
}

// apply does what the switch does with a bundle.
func apply(have []Flow, c Changes) []Flow {
	table := map[flowKey]Flow{}
	for _, f := range have {
		table[f.key()] = f
	}
	for _, f := range slices.Concat(c.Add, c.Modify) {
		table[f.key()] = f
	}
	for _, f := range c.Delete {
		delete(table, f.key())
	}
	out := slices.Collect(maps.Values(table))
	Sort(out)
	return out
}

func TestDiffLeadsFromHaveToWant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		have, want := genFlows().Draw(t, "have"), genFlows().Draw(t, "want")
		c := Diff(have, want)
		Sort(want)
		if d := cmp.Diff(want, apply(have, c), cmp.Transformer("nil", func(f []Flow) []Flow { return append([]Flow{}, f...) })); d != "" {
			t.Fatalf("applied: %s", d)
		}
		for _, f := range slices.Concat(c.Add, c.Modify) {
			if slices.Contains(have, f) {
				t.Fatalf("touched without need: %s", f)
			}
		}
		if len(c.Lines()) != len(c.Add)+len(c.Modify)+len(c.Delete) {
			t.Fatalf("lines: %q", c.Lines())
		}
		if !Diff(want, want).Empty() {
			t.Fatal("a set differs from itself")
		}
	})
}

// TestCompileIsAFunction: the order of the input's slices does not matter.
func TestCompileIsAFunction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := scene(rapid.SampledFrom([]TunnelMode{Metadata, HeaderBits}).Draw(t, "mode"))
		want, err := Compile(in)
		if err != nil {
			t.Fatal(err)
		}
		in.Ports = rapid.Permutation(in.Ports).Draw(t, "ports")
		in.Routes = rapid.Permutation(in.Routes).Draw(t, "routes")
		in.Subnets = rapid.Permutation(in.Subnets).Draw(t, "subnets")
		in.VTEPs = rapid.Permutation(in.VTEPs).Draw(t, "vteps")
		got, err := Compile(in)
		if err != nil || cmp.Diff(want, got) != "" {
			t.Fatal(err, cmp.Diff(want, got))
		}
	})
}
