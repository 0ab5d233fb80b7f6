package drops

import (
	"testing"

	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// TestKinds: each reason that the pipeline has is a kind here, with a name of its own, and of what is no
// noise it is said what to do.
func TestKinds(t *testing.T) {
	for r := pipeline.Reason(1); r.String() != "unknown reason"; r++ {
		if _, ok := reasons[r]; !ok {
			t.Errorf("no word for the drop %q", r)
		}
	}
	seen := map[string]bool{}
	for _, k := range All() {
		if k.Reason == "" || k.Why == "" || seen[k.Reason] || (k.Class == Noise) != (k.Do == "") {
			t.Errorf("%+v", k)
		}
		seen[k.Reason] = true
	}
	cookie := func(s pipeline.Stage, k pipeline.ObjectKind, object uint64) uint64 {
		return pipeline.Cookie{Round: pipeline.Round, Stage: s, Kind: k, Object: object}.Pack()
	}
	for c, want := range map[uint64]Kind{
		cookie(pipeline.SpoofGuard, pipeline.KindRoute, 1):                                   WrongVTEP,
		cookie(pipeline.SpoofGuard, pipeline.KindEndpoint, 1):                                Spoofed,
		cookie(pipeline.Output, pipeline.KindDrop, 200):                                      Unknown,
		cookie(pipeline.Conntrack, pipeline.KindRule, 3):                                     Denied,
		cookie(pipeline.Forwarding, pipeline.KindSubnet, 3):                                  Unowned,
		cookie(pipeline.VNIDCheck, pipeline.KindDrop, uint64(pipeline.DropOtherNetwork)):     reasons[pipeline.DropOtherNetwork],
		cookie(pipeline.Conntrack, pipeline.KindEndpoint, uint64(pipeline.DropOtherNetwork)): reasons[pipeline.DropLinkLocal],
	} {
		if k := Of(c); k != want {
			t.Errorf("cookie %#x is %+v", c, k)
		}
	}
}

// TestDeniedBy: a rule says on which side of a connection it is.
func TestDeniedBy(t *testing.T) {
	for stage, want := range map[pipeline.Stage][2]string{
		pipeline.EgressPolicy:  {"a container that it is about", "whom it calls"},
		pipeline.EgressRules:   {"a container that it is about", "whom it calls"},
		pipeline.IngressPolicy: {"a caller", "a container that it is about"},
		pipeline.IngressRules:  {"a caller", "a container that it is about"},
	} {
		k := Of(pipeline.Cookie{Round: pipeline.Round, Stage: stage, Kind: pipeline.KindRule, Object: 3}.Pack())
		if k.Reason != Denied.Reason || [2]string{k.From, k.To} != want {
			t.Errorf("stage %s: %+v", stage, k)
		}
	}
}
