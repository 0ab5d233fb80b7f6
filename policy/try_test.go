package policy

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestTrial: what a trial says changes is what does, and of those that it asks for it leaves nothing out.
func TestTrial(t *testing.T) {
	changes := 0
	rapid.Check(t, func(t *rapid.T) {
		before := drawWorld(t, rapid.Bool().Draw(t, "whole"))
		p := drawPolicy(t, fmt.Sprint("p", rapid.IntRange(0, 5).Draw(t, "which")))
		for _, o := range before.Policies { // perhaps one that is there
			if o.Name == p.Name {
				p.Key = o.Key
			}
		}
		if p.Kind.tiered() && p.Tier == 0 {
			p.Tier = Admin
		}
		trial := Trial{Before: before, After: before.With(p), Most: 1 << 20}
		trial.Run(p.Key)
		said := map[string]bool{}
		for _, c := range trial.Changes {
			was, is := before.Verdict(c.From, c.To, c.Proto, c.Port), trial.After.Verdict(c.From, c.To, c.Proto, c.Port)
			if was.Allowed == is.Allowed || is.Allowed != c.Allowed {
				t.Fatalf("%+v: it was %t and is %t", c, was.Allowed, is.Allowed)
			}
			said[fmt.Sprint(c.From.Endpoint, c.To.Endpoint, c.Proto, c.Port)] = true
			changes++
		}
		for _, from := range before.Endpoints {
			for _, to := range before.Endpoints {
				for _, a := range attemptsOf(slices.Concat(trial.After.Policies[:0:0], []Policy{p})) {
					f, g := Peer{Endpoint: from.ID}, Peer{Endpoint: to.ID}
					if from.ID == to.ID || from.Network != to.Network || said[fmt.Sprint(from.ID, to.ID, a.proto, a.port)] {
						continue
					}
					if before.Verdict(f, g, a.proto, a.port).Allowed != trial.After.Verdict(f, g, a.proto, a.port).Allowed && !a.other {
						t.Fatalf("from %s to %s, %+v: nothing was said", from.ID, to.ID, a)
					}
				}
			}
		}
	})
	if changes == 0 {
		t.Error("nothing changed: the test shows nothing")
	}
}

// TestTrialHasAnEnd: of more connections than it may ask for it says so.
func TestTrialHasAnEnd(t *testing.T) {
	p := Policy{Key: Key{Kind: NetworkPolicy, Network: "shop", Name: "deny"}, Subject: Set{Network: "shop"}, IsolatesIngress: true}
	w := shop(true)
	trial := Trial{Before: w, After: w.With(p), Most: 5}
	if trial.Run(p.Key); trial.Asked != 5 || !trial.Partly {
		t.Errorf("asked for %d, partly %t", trial.Asked, trial.Partly)
	}
}
