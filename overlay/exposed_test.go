package overlay

import (
	"slices"
	"testing"

	"github.com/grapevine-net/grapevine/service/expose"
)

// TestFronts: containers leave by no port that this host heeds. A label on another host, that this one does not heed,
// takes none from them.
func TestFronts(t *testing.T) {
	all := []expose.Exposure{
		{Port: expose.Port{Port: 80}, Network: "blue", Closed: true, Service: "inside"},
		{Port: expose.Port{Port: 443}, Network: "blue", Service: "web"},
		{Port: expose.Port{Port: 443}, Network: "blue", Loses: "service blue/web"},
		{Port: expose.Port{Port: 7008}, Network: "blue"},
		{Port: expose.Port{Port: 7008, UDP: true}, Network: "blue"},
	}
	for _, c := range []struct {
		heeds func(expose.Exposure) bool
		want  []uint16
	}{
		{expose.Services.Heeds, []uint16{443}},
		{expose.Labels.Heeds, []uint16{443, 7008}},
		{expose.Nothing.Heeds, nil},
		{nil, []uint16{443, 7008}},
	} {
		if got := Fronts(all, c.heeds); !slices.Equal(got, c.want) {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
}
