package driver

import (
	"slices"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/internal/docker"
)

func TestStrangers(t *testing.T) {
	now := time.Unix(1000, 0)
	d := &Driver{cfg: Config{Now: func() time.Time { return now }}}
	v := view{
		driver: "grapevine", now: now,
		local: map[string]localNetwork{"1": {Name: "blue"}},
		networks: []docker.Network{
			{ID: "1", Name: "blue", Driver: "grapevine"}, {ID: "2", Name: "red", Driver: "grapevine"}, {ID: "3", Name: "bridge", Driver: "bridge"},
		},
		containers: []docker.Container{
			{Name: "app", Networks: []docker.Attachment{{NetworkID: "1"}}},
			{Name: "web", Networks: []docker.Attachment{{NetworkID: "2"}}},
		},
	}
	d.strange = v.strange(nil)
	if got := d.Strangers(); got != nil {
		t.Errorf("at once, as while Docker removes it: %v", got)
	}
	now = now.Add(strangeAfter + time.Second)
	v.now = now
	d.strange = v.strange(d.strange)
	if got := d.Strangers(); len(got) != 1 || got[0].Network != "red" || !slices.Equal(got[0].Containers, []string{"web"}) {
		t.Errorf("the strangers are %v, want red with web", got)
	}
	v.networks = v.networks[:1]
	if d.strange = v.strange(d.strange); d.Strangers() != nil {
		t.Error("a network that is gone is still strange")
	}
}
