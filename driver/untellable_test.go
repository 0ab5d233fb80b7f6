package driver

import (
	"slices"
	"testing"

	dockernet "github.com/docker/docker/api/types/network"

	"github.com/grapevine-net/grapevine/cluster"
)

// A network whose name no other host can be told keeps nobody else from being told: containers of other networks, made before
// and after, have their names in the cluster, and it is named itself.
func TestUntellable(t *testing.T) {
	e := newEngine(t)
	blue, err := e.create(dockernet.CreateRequest{Name: "blue"})
	check(t, err)
	e.look()
	id, err := e.create(dockernet.CreateRequest{Name: "red\nand more\x1b[31m"})
	check(t, err)
	web, odd := e.run(blue, "web"), e.run(id, "odd")
	for range 3 {
		e.look()
	}
	for ep, want := range map[string]string{web: "web", odd: "odd"} {
		if rec, live := cluster.Get[cluster.Endpoint](e.rig.replica.Snapshot(), ep); !live || rec.Name != want {
			t.Errorf("the container %s is called %q in the cluster", want, rec.Name)
		}
	}
	if green, err := e.create(dockernet.CreateRequest{Name: "green"}); err != nil {
		t.Error(err)
	} else if e.look(); !e.rig.core.local.networks[green].Learnt {
		t.Error("a network made later has no name")
	}
	if list := e.rig.Untellable(); !slices.Equal(list, []string{id}) {
		t.Errorf("untellable are %q", list)
	}
	e.rm("odd")
	e.remove(id)
	e.look()
	if list := e.rig.Untellable(); len(list) != 0 {
		t.Errorf("untellable are %q, and it has gone", list)
	}
}
