package problems

import (
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/host/docker"
)

func TestSwarmProblems(t *testing.T) {
	for _, c := range []struct {
		swarm docker.Swarm
		port  uint16
		want  string // "": no problem
	}{
		{docker.Swarm{}, 4789, ""},
		{docker.Swarm{Active: true, VXLANPort: 4789}, 4789, "UDP port 4789 as well: only one of the two can have it"},
		{docker.Swarm{Active: true, VXLANPort: 4789}, 4790, ""},
		{docker.Swarm{Active: true, VXLANPort: 7777}, 4789, ""},
		{docker.Swarm{Active: true, VXLANPort: 7777}, 7777, "UDP port 7777"},
		{docker.Swarm{Active: true}, 4789, "on its managers only"}, // a worker is not told
		{docker.Swarm{Active: true}, 4790, ""},
	} {
		got := swarmProblems(c.swarm, c.port)
		if (c.want == "") != (len(got) == 0) || len(got) == 1 && !strings.Contains(got[0].What, c.want) {
			t.Errorf("%+v, port %d: %v, want %q", c.swarm, c.port, got, c.want)
		}
	}
}
