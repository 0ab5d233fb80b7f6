package agent

import (
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
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

func TestDifferentVXLANPorts(t *testing.T) {
	node := func(name string, port uint16, alive bool) api.Node {
		return api.Node{ID: name, Name: name, MTU: 1500, VXLANPort: port, Alive: alive}
	}
	got := vxlanDifferences([]api.Node{node("one", 4789, true), node("two", 4790, true), node("three", 4790, false), node("four", 0, true)}, 4789)
	if len(got) != 1 || got[0].What != "the UDP port of VXLAN is 4789 here and 4790 on two: containers of the two do not reach each other" {
		t.Errorf("problems: %v", got)
	}
}
