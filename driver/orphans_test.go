package driver

import (
	"slices"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/docker"
)

func TestOrphans(t *testing.T) {
	now := time.Unix(1000, 0)
	v := view{
		driver: "grapevine", now: now,
		local:     map[string]localNetwork{"1": {Name: "blue"}},
		endpoints: map[string]localEndpoint{"e1": {}},
		networks: []docker.Network{
			{ID: "1", Name: "blue", Driver: "grapevine"}, {ID: "2", Name: "red", Driver: "grapevine"}, {ID: "3", Name: "bridge", Driver: "bridge"},
			{ID: "4", Name: "shop", Driver: "grapevine", Swarm: true}, // listed by a manager that has no task on it
		},
		containers: []docker.Container{
			{Name: "app", Networks: []docker.Attachment{{NetworkID: "1", EndpointID: "e1"}}},
			{Name: "halted", Networks: []docker.Attachment{{NetworkID: "1"}}},
			{Name: "ended", State: "exited", Networks: []docker.Attachment{{NetworkID: "1", EndpointID: "e3"}}},
			{Name: "old", Networks: []docker.Attachment{{NetworkID: "1", EndpointID: "e2"}}},
			{Name: "web", Networks: []docker.Attachment{{NetworkID: "2"}}},
		},
	}
	v.orphaned = v.orphans(nil)
	if got := v.listOrphans(nil); got != nil {
		t.Errorf("at once, as while Docker removes it: %v", got)
	}
	if d := untilNamed(v.orphaned, now.Add(time.Second), time.Minute); d != namedAfter-time.Second {
		t.Errorf("it is looked at again after %v, not when they are to be named", d)
	}
	v.now = now.Add(namedAfter)
	v.orphaned = v.orphans(v.orphaned)
	got := v.listOrphans(nil)
	if len(got) != 2 || got[0].Network != "blue" || !got[0].Known || !slices.Equal(got[0].Containers, []string{"old"}) ||
		got[1].Network != "red" || got[1].Known || !slices.Equal(got[1].Containers, []string{"web"}) {
		t.Errorf("the orphans are %+v, want old on blue, and red with web", got)
	}
	v.networks, v.containers = v.networks[:1], v.containers[:3]
	if v.orphaned = v.orphans(v.orphaned); v.listOrphans(nil) != nil {
		t.Error("what is gone is still orphaned")
	}
}
