package agent

import (
	"testing"

	"github.com/grapevine-net/grapevine/api"
)

// TestCauseFirst: a switch that hangs is named before all else, and what comes of it not beside it.
func TestCauseFirst(t *testing.T) {
	list := func() []api.Problem { return []api.Problem{{Code: api.EncapLost}, {Code: api.HostSilent}} }
	if got := causeFirst(nil, list()); len(got) != 2 {
		t.Errorf("without a cause: %+v", got)
	}
	got := causeFirst([]api.Problem{{Code: api.SwitchHangs}}, list())
	if len(got) != 2 || got[0].Code != api.SwitchHangs || got[1].Code != api.HostSilent {
		t.Errorf("%+v", got)
	}
}
